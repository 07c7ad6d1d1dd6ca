"""check_model: a Hugging Face model object, held against what every right model keeps."""
import contextlib
import math

import numpy as np

from ._loss import check_loss
from ._model_findings import Findings, layer_parameters

_CERTAIN_ROWS = 2
_BYTES = {"torch.float64": 1e-15, "torch.float32": 1.2e-7, "torch.float16": 1e-3, "torch.bfloat16": 8e-3}


def _repeats(run, ids, findings):
    """Whether eval() gives the same answer twice; names the random draws where it does not."""
    import torch

    from ._model_run import random_draws

    first, second = run.logits(ids), run.logits(ids)
    if torch.isnan(first).any():
        findings.broken = "when it was called: logits are NaN"
        return
    if torch.equal(first, second):
        findings.evidence.append(("The same call repeated in eval() changes no logit: 0 differences.", 0.0))
        return
    change = (first - second).abs().max().item() / first.abs().max().item()
    torch.manual_seed(0)
    seeded = run.logits(ids)
    torch.manual_seed(0)
    drawn = torch.equal(seeded, run.logits(ids))
    findings.evidence.append((f"The same call repeated in eval() changes logits by a share of {change:.3g}.", change))
    draws = random_draws(run.model, ids)
    for where, function, rate in draws[:8]:
        findings.evidence.append((f"rate of {function} in {where or 'the model'}, in eval()", rate))
    if drawn and draws:
        dropouts = [d for d in draws if "dropout" in d[1] or "attention" in d[1]]
        where, function, rate = (dropouts or draws)[0]
        what = f"dropout is left on in eval(): {rate:g}" if dropouts else f"{function} draws in eval()"
        findings.broken = f"answers differ each time: {what} in {where or 'the model'}"
        if len(dropouts) > 1:
            findings.broken += f" and {len(dropouts) - 1} more places"
    elif change > 1e3 * _BYTES.get(str(first.dtype), 1e-7):
        findings.broken = "answers differ each time, with one seed too"


def _bound(run, ids, tiny):
    """The change of a logit that is rounding: eight times what a relative change `tiny` of the embeddings does."""
    import torch

    from ._model_relations import usual_columns

    base = run.logits(ids)
    usual = usual_columns(base)
    weight = run.model.get_input_embeddings().weight
    kept = weight.data
    noise = torch.empty_like(kept).uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
    try:
        weight.data = kept * (1 + tiny * noise)
        moved = (run.logits(ids) - base)[..., usual].abs().max().item()
    finally:
        weight.data = kept
    return 8 * max(moved, tiny * base[..., usual].abs().max().item())


def _relations(run, ids, bound, rng, pad, packing, findings):
    from . import _model_cache, _model_norms
    from ._model_relations import Relations

    relations = Relations(run, ids, bound, rng, pad)
    for method in (relations.batch, relations.causality, relations.gradients_of_the_first_row, relations.chunks,
                   relations.shifted_positions, relations.padding, relations.training):
        relations.hold(method)

    def documents():
        return relations.documents(packing)

    def rows_of_a_cache():
        return _model_cache.beams(relations)

    def heads_of_a_cache():
        return _model_cache.stored_heads(relations)

    def norms_of_q_and_k():
        return _model_norms.query_and_key_norms(relations)

    for method in (documents, rows_of_a_cache, heads_of_a_cache, norms_of_q_and_k):
        relations.hold(method)
    findings.unseen += relations.skipped
    findings.evidence += relations.notes
    for relation in relations.done:
        findings.evidence.append((f"{'holds' if relation.holds else 'FAILS'}: {relation.name}; the largest change is "
                                  f"{relation.worst:.3g} bounds of rounding.", relation.worst))
        findings.evidence += relation.notes
        if relation.holds:
            findings.held += 1
            continue
        findings.broken_relations.append(relation)
        if relation.group == "norms_of_q_and_k":  # shown by its own experiment, and the cause of what else fails
            slug, variant, what, parameters = relation.fault
            findings.fault(slug, variant, what, parameters, 0.0, relation.rows >= _CERTAIN_ROWS,
                           relation.name + " fails")
        if relation.place:
            row, token, part, expected, got = relation.place
            findings.differences.append(("logits", [row, token, part], expected, got))
    return relations


def _layers(run, ids, pad, findings):
    """Names what the attention of the first wrong layer does, in the first way of calling that shows one."""
    from ._model_layers import KNOWN, beyond_the_config, scenarios

    model = run.model
    config = model.config.get_text_config()
    beyond = beyond_the_config(model)
    if beyond:
        findings.unseen.append(f"the attention of each layer: {beyond} is not in what a config declares")
        return
    known = config.model_type in KNOWN
    for scenario in scenarios(run, ids, pad):
        try:
            scene = scenario()
            wrong, right = scene.reports()
        except Exception as error:  # a refusal of the model, or a rotation that must be declared by hand
            text = (str(error).strip().splitlines() or [""])[0]
            findings.unseen.append(f"the attention of each layer ({scenario.__name__}): {text[:160]}")
            continue
        findings.evidence.append((f"layers do what their config declares {scene.name}", right))
        if not wrong:
            continue
        layer, report = wrong[0]
        named = report.verdict in ("fault", "ambiguous")
        shared = scene.rotations_of_another_type() if named and known else None
        if shared:
            layers, theirs, own = shared
            parameters = [("layer", float(layers[0]), "the first that turns otherwise, from 0"),
                          ("layers", float(len(layers)), "that do")]
            findings.fault("rope.per_layer", "", f"layers of type {own} turn by the rotation of {theirs} layers",
                           parameters, 0.0, report.faults[0].certain, scene.name)
            return
        # Of a family that is not known the declaration is a guess, and what contradicts it is told, not named.
        if named and known:
            where = f"{scene.name}, layer {layer}" + (f" and {wrong[1][0]}" if len(wrong) > 1 else "")
            if report.verdict == "ambiguous":
                findings.told_apart(report, layer, where)
            for fault in report.faults if report.verdict == "fault" else ():
                findings.fault(fault.slug, fault.variant, fault.what, layer_parameters(layer, fault), fault.misfit,
                               fault.certain, where)
        else:
            text = f"the attention of layer {layer} {scene.name} is not what its config declares: {report.summary}"
            if known:
                findings.unexplained.append(text)
                findings.wrong_layer = layer
                findings.evidence.append(
                    (f"the first layer whose attention is not what its config declares, {scene.name}", layer))
            else:
                findings.unseen.append(text)
        if report.first_difference and (named or known):
            d = report.first_difference
            findings.differences.insert(0, (f"layer.{layer}.{d['tensor']}", d["index"], _number(d["expected"]),
                                            _number(d["got"])))
        return


def _number(x):
    return math.nan if x is None else float(x)


def _objective(run, rng, findings):
    """The model's own loss beside its own logits; whether they agree, or None where it has none."""
    import torch

    from ._model_run import random_ids

    if "labels" not in run.takes:
        findings.unseen.append("the objective: forward takes no labels")
        return None
    config = run.model.config.get_text_config()
    few = min(256, config.vocab_size)
    # The first tokens and those that a loss may leave out by value; all others are one column.
    special = [getattr(config, name, None) for name in ("pad_token_id", "eos_token_id")]
    special = sorted({x for x in special if isinstance(x, int) and 0 <= x < config.vocab_size})
    columns = [*range(few), *(x for x in special if x >= few)]
    labels, logits, losses, ids_of = [], [], [], []
    for _ in range(2):
        ids = torch.from_numpy(random_ids(config, 3, 12, rng, few))
        for place, token in enumerate(special):
            ids[0, 7 + place] = ids[1, 3 + place] = token
        target = ids.clone()
        target[0, :5], target[1, 9:], target[2, 3] = -100, -100, -100
        out = run(ids, labels=target)
        if out.loss is None:
            findings.unseen.append("the objective: no loss came back for labels")
            return None
        place_of = {token: place for place, token in enumerate(columns)}
        labels.append(np.vectorize(lambda x: place_of.get(x, x))(target.numpy()))
        ids_of.append(np.vectorize(place_of.get)(ids.numpy()))
        losses.append(out.loss.item())
        logits.append(_few_columns(out.logits.detach(), columns))
    kind = {"torch.bfloat16": "bf16", "torch.float16": "f16"}.get(str(out.loss.dtype), "f32")
    report = check_loss(np.stack(labels), logits=np.stack(logits), loss=np.array(losses, np.float64),
                        input_ids=np.stack(ids_of), dtype=kind)
    for line in report.evidence:
        findings.evidence.append(("the objective: " + line["what"], _number(line["value"])))
    for fault in report.faults:
        parameters = [(n, float(columns[int(v)] if n == "value" else v), "") for n, v in fault.parameters.items()]
        findings.fault(fault.slug, fault.variant, fault.what, parameters, fault.misfit,
                       fault.certain and report.verdict == "fault", "the model's own loss")
    if not report.ok:
        if not report.faults:
            findings.unexplained.append("the loss is not the mean cross entropy of the model's own logits")
        if report.first_difference:
            d = report.first_difference
            findings.differences.append((d["tensor"], d["index"], _number(d["expected"]), _number(d["got"])))
    return report.ok


def _few_columns(logits, columns):
    """float64 logits of some tokens, and one column that stands for all others together."""
    logits = logits.double()
    if logits.shape[-1] <= len(columns):
        return logits.numpy()
    others = np.delete(np.arange(logits.shape[-1]), columns)
    return np.concatenate([logits[..., columns].numpy(), logits[..., others].logsumexp(-1, keepdim=True).numpy()], -1)


def _gradients(run, ids, rng, findings):
    from ._model_gradients import check_gradients

    if not any(p.requires_grad for p in run.model.parameters()):
        findings.unseen.append("the gradient: no parameter requires one")
        return None
    labels = ids.clone()
    labels[:, :2] = -100
    found = check_gradients(run, ids, labels, rng)
    findings.evidence.append((f"relative error of the gradient along a random direction, {found.num_tensors} tensors, "
                              f"step {found.step:g}", found.error))
    findings.evidence.append((f"The gradient taken again changes by a share of {found.repeats:.3g}.", found.repeats))
    if found.repeats > 1e-9:
        findings.fault("grad.nondeterminism", "", "the gradient is another each time", [], 0.0, False)
    for name in found.severed[:8]:
        findings.evidence.append((f"gradient of {name}, and the loss depends on it", 0.0))
    if found.severed:
        what = "no gradient reaches " + ", ".join(found.severed[:4])
        what += f" and {len(found.severed) - 4} more" if len(found.severed) > 4 else ""
        parameters = [("tensors", float(len(found.severed)), "without a gradient")]
        findings.fault("grad.severed", "", what, parameters, 0.0, True)
    elif found.wrong:
        name, expected, got = found.wrong[-1]
        findings.differences.append((f"gradient of {name}, along a random direction", [], expected, got))
        findings.unexplained.append(f"the gradient is not that of the loss: {name} is the last tensor that differs")
    return found.right


def check_model(model, *, tokens=0, packing=None, wide=True, seed=0):
    """Holds a causal language model against what every right one keeps, without weights or results of ours: a Report.

    model    a transformers model for causal language modelling on the CPU, or one with its `config`,
             `get_input_embeddings()` and `logits`; what its forward does not take is not asked
    tokens   of a sequence; 0: 24, or as many as its windows need up to 96
    packing  True: documents are to be told apart by restarting positions alone; None: that is noted; False: not asked
    wide     True: relations and gradients are taken in float64, where rounding hides nothing; the model computes in its
             own type again when the call ends. False, and where it refuses: in its own type

    Relations: a row in a batch, other rows, other order; an edit of a later token, and the gradient of the first
    position; calls on a cache of several cuts; a cache in another order of rows, and the heads that it stores; norms of
    queries and keys; padding on the left and on the right; positions + a constant; packed documents under a 4-D mask
    and by positions; training mode. The gradient: directional differences in float64 over a sweep of steps. The
    objective: `check_loss` on the model's own loss and logits. A right gradient of a wrong objective, and the reverse,
    are told apart. Layers: each one's attention, recorded, against its config (`record`).

    Costs some hundred forwards. Training mode and types of the model are as before when it returns, its gradients too;
    not for a model that other threads use meanwhile. ValueError for what is no such model.
    """
    import torch

    from ._model_run import ModelRun, evaluating, in_float64, random_ids

    if not callable(getattr(model, "forward", None)) or not all(
            hasattr(holder, name) for holder, name in ((model, "config"), (model, "get_input_embeddings"),
                                                       (getattr(model, "config", None), "get_text_config"))):
        raise ValueError(f"check_model takes a transformers model, got {type(model).__name__}")
    if tokens and tokens < 12:
        raise ValueError(f"tokens is {tokens}, expected at least 12")
    run, findings = ModelRun(model), Findings()
    config = model.config.get_text_config()
    rng = np.random.default_rng(seed)
    window = max([x for x in (getattr(config, "sliding_window", None), getattr(config, "attention_chunk_size", None))
                  if x] or [0])
    count = tokens or max(24, window + 8 if window <= 88 else 24)
    longest = getattr(config, "max_position_embeddings", None) or count
    count = min(count, longest)
    ids = torch.from_numpy(random_ids(config, 2, count, rng))
    pad = getattr(config, "pad_token_id", None)
    pad = pad if isinstance(pad, int) and pad >= 0 else 0
    grads = [(p, p.grad) for p in model.parameters()]
    for p, _ in grads:
        p.grad = None  # what is kept must not be added to
    objective = gradient = None
    state = torch.random.get_rng_state()
    try:
        with evaluating(model):
            try:
                _repeats(run, ids, findings)
            except Exception as error:
                findings.broken = f"when it was called: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
            if not findings.broken:
                tiny, context = (1e-9, in_float64(model)) if wide else (_own(model), contextlib.nullcontext())
                try:
                    with context:
                        bound = _bound(run, ids, tiny)
                        if tiny < 1e-8:
                            _relations(run, ids, bound, rng, pad, packing, findings)
                            gradient = _gradients(run, ids, rng, findings)
                except Exception as error:
                    findings.unseen.append(f"float64: {type(error).__name__}: {str(error).splitlines()[0][:160]}")
                    tiny = _own(model)
                if tiny >= 1e-8:
                    _relations(run, ids, _bound(run, ids, tiny), rng, pad, packing, findings)
                    findings.unseen.append("the gradient: only float64 tells differences from rounding")
                if not any(slug == "head.qk_norm" for slug, *_ in findings.faults):  # these stand before the attention
                    _layers(run, ids, pad, findings)
                objective = _objective(run, rng, findings)
                _name_relations(findings)
    finally:
        torch.random.set_rng_state(state)
        for p, grad in grads:
            p.grad = grad
    findings.right = {name: ok for name, ok in (("gradient", gradient), ("objective", objective)) if ok is not None}
    for name, right in findings.right.items():
        findings.evidence.append((f"the {name} is right" if right else f"the {name} is not right", float(right)))
    return findings.report(f"{type(model).__name__}, {config.model_type}, {count} tokens",
                           f"import sightline as sl\n\nsl.check_model(model, tokens={count}, packing={packing}, "
                           f"wide={wide}, seed={seed})")


def _own(model):
    return _BYTES.get(str(next(model.parameters()).dtype), 1.2e-7)


def _name_relations(findings):
    """Names the first kind of relation that fails, where no layer has explained it: a later kind mostly fails because
    of it, and is listed. A gradient that reaches hidden tokens is apart from what the forward does."""
    def is_forward(slug):
        return slug.split(".")[0] not in ("grad", "loss")

    named = any(is_forward(slug) for slug, *_ in findings.faults)
    group = None
    for relation in findings.broken_relations:
        is_gradient = relation.group == "gradients_of_the_first_row"
        if not is_gradient:
            group = group or relation.group
        if relation.fault is None or not (is_gradient or relation.group == group):
            continue
        slug, variant, what, parameters = relation.fault
        if is_forward(slug) and named:
            continue
        named = named or is_forward(slug)
        if findings.wrong_layer is not None:
            layer = ("layer", float(findings.wrong_layer), "the first whose attention differs, from 0")
            parameters = [layer, *parameters]
        findings.fault(slug, variant, what, parameters, 0.0, relation.rows >= _CERTAIN_ROWS, relation.name + " fails")
