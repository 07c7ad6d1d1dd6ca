"""docs/faults.md from the outcomes of a run. Words and numbers only; nothing is asked here."""
import collections

NOT_PLANTED = {
    "mask.tree_speculative": "needs the table of a draft tree, which arrays of one sequence do not carry",
    "cache.rollback": "needs a rejection between calls", "cache.prefix_identity": "needs two requests",
    "cache.beam_reorder": "needs beams", "cache.gqa_expansion": "shows in bytes, not in numbers",
    "rope.per_layer": "needs the layers of a model", "rope.batch_row": "needs rows of a batch at other positions",
    "head.qk_norm": "needs the layer around the attention", "loss.normalisation": "needs the loss of several splits",
    "grad.nondeterminism": "needs repeated calls", "grad.dropout_replay": "needs the package's own random numbers",
    "grad.check_misuse": "is a fault of a test", "batch.reduction_order": "is a control here: other orders of addition",
    "batch.kernel_indexing": "needs batches of many sizes",
}
COLUMNS = ("planted", "visible", "named", "ambiguous", "wrong", "wrong and certain", "unknown", "not seen")


def share(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else "-"


def by_kind(outcomes, counts):
    kinds = collections.defaultdict(list)
    for o in outcomes:
        kinds[o.case.kind].append(o)
    lines = ["| kind | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for kind, some in kinds.items():
        c = counts(some)
        lines.append(f"| `{kind}` | " + " | ".join(str(c[x]) for x in COLUMNS) + " |")
    total = counts(outcomes)
    lines.append("| all | " + " | ".join(str(total[x]) for x in COLUMNS) + " |")
    return lines, total


def confusions(outcomes):
    pairs = collections.Counter()
    for o in outcomes:
        if o.visible and o.result in ("wrong", "unknown", "not seen", "ambiguous"):
            named = " and ".join(o.named) if o.named else o.verdict
            pairs[o.case.kind, o.case.form, named + (" (certain)" if o.certain else "")] += 1
    lines = ["| planted | form | answered | times |", "|---|---|---|---|"]
    for (kind, form, named), times in sorted(pairs.items()):
        lines.append(f"| `{kind}` | {form or '-'} | {named} | {times} |")
    return lines if len(lines) > 2 else ["None."]


def of_forms(outcomes, good, title):
    forms = collections.defaultdict(list)
    for o in outcomes:
        forms[o.case.form].append(o)
    lines = [f"| {title} | runs | {' | '.join(good)} |", "|---|---" + "|---" * len(good) + "|"]
    for form, some in forms.items():
        tally = collections.Counter(o.result for o in some)
        certain = sum(o.result == "wrong" and o.certain for o in some)
        tally["wrong and certain"] = certain
        lines.append(f"| {form} | {len(some)} | " + " | ".join(str(tally[g]) for g in good) + " |")
    return lines


def document(groups, counts, *, date, seed, count, seconds):
    """groups: planted, declaration, pair, uncatalogued and control outcomes."""
    lines, total = by_kind(groups["planted"], counts)
    controls = groups["control"]
    alarms = sum(o.result == "false alarm" for o in controls)
    seen = total["visible"]
    lost = total["unknown"] + total["not seen"]
    text = [
        "# What the checker names, counted", "",
        f"Written by `tools/confusion --count {count} --seed {seed} --write-docs` on {date} in {seconds:.0f} s. Faults are",
        "planted in an implementation of attention in plain numpy (`python/tests/confusion`) that was written from the",
        "definitions of the catalogue and shares no code with the package; the package sees arrays only, two probes a",
        "case. Sizes, masks, rotations, scores, calls and types (f32, bf16, f16; computed in f32, inputs and outputs",
        "rounded) are drawn at random, without the sizes under which a fault hides.", "",
        f"The seeds from {seed} on were used for this run alone: nothing was changed after looking at what they gave.",
        "Seeds below 900000 were used while the checker was mended.", "",
        "| what | reached | mark |", "|---|---|---|",
        f"| named first, of those visible | {share(total['named'], seen)} ({total['named']} of {seen}) | 97 % |",
        f"| a wrong name stated as certain | {total['wrong and certain']} | 0 |",
        f"| not found (unknown, or not seen) | {share(lost, seen)} ({lost}) | under 1 % |",
        f"| false alarms on controls | {alarms} of {len(controls)} | 0 |", "",
        "Visible: differs from the declared meaning by more than ten roundings, as the plain implementation itself",
        "rounds. Ambiguous: several names, the right one among them.", "",
        "## Each kind", "", *lines, "", "Kinds that are not planted here:", "",
        *[f"- `{slug}` {why}" for slug, why in NOT_PLANTED.items()], "",
        "## Confusions", "", *confusions(groups["planted"]), "",
        "## Wrong declarations", "",
        "The implementation is right, and means something else than was said. The right name is that of the fault that",
        "turns the one into the other.", "",
        *of_forms(groups["declaration"], ("named", "ambiguous", "wrong", "wrong and certain", "unknown", "not seen"),
                  "declared otherwise"), "",
        "## Two faults at once", "", "Both named together, or `unknown`.", "",
        *of_forms(groups["pair"], ("named", "ambiguous", "wrong", "wrong and certain", "unknown", "not seen"),
                  "planted"), "",
        "## Faults of no catalogue", "", "`unknown`, and never a name that is certain.", "",
        *of_forms(groups["uncatalogued"], ("unknown", "wrong", "wrong and certain", "not seen"), "planted"), "",
        "## Controls", "", "What looks like a fault and is none, and right runs in other orders of addition.", "",
        *of_forms(controls, ("quiet", "false alarm"), "control"), "",
    ]
    return "\n".join(text)
