"""Plants, asks the package, and counts: one line of the table for each kind."""
import collections
import dataclasses
import zlib

import numpy as np

from . import objective, others
from .attention import Attention
from .draw import draw, draw_inputs
from .in_type import InType
from .meaning import declare
from .registry import FAULTS
from .rounding import UNITS

PROBES = 2  # what makes a name certain is that two observations exclude the others


@dataclasses.dataclass
class Case:
    """One combination: what is declared, what was done, and which names are right."""
    kind: str
    form: str
    seed: int
    declared: object
    make: type
    done: object
    parameters: dict
    expected: frozenset


@dataclasses.dataclass
class Outcome:
    case: Case
    visible: bool
    verdict: str
    named: tuple = ()
    certain: bool = False
    result: str = ""  # named, equal, ambiguous, wrong, unknown, not seen; of controls quiet, false alarm
    summary: str = ""
    report: object = None


def generator(kind, form, seed):
    return np.random.default_rng([zlib.crc32(f"{kind}/{form}".encode()), seed])


def planted_cases(slug, seed, count):
    """`count` combinations of a kind, its forms in turn."""
    forms = [f for f in FAULTS if f.slug == slug]
    for i in range(count):
        fault = forms[(seed + i) % len(forms)]
        rng = generator(slug, fault.form, seed + i)
        m, parameters = fault.prepare(rng, draw(rng, **fault.want))
        yield Case(slug, fault.form, seed + i, m, fault, m, parameters, frozenset([slug])), rng


def declaration_cases(seed, count):
    for i in range(count):
        make = others.DECLARATIONS[(seed + i) % len(others.DECLARATIONS)]
        rng = generator("declaration", make.__name__, seed + i)
        said, done, slug = make(rng)
        yield Case("declaration", make.__name__, seed + i, said, Attention, done, {}, frozenset([slug])), rng


def pair_cases(seed, count):
    for i in range(count):
        both = others.PAIRS[(seed + i) % len(others.PAIRS)]
        rng = generator("pair", both.make.__name__, seed + i)
        m, parameters = both.prepare(rng, draw(rng, **both.want))
        yield Case("pair", both.make.__name__, seed + i, m, both.make, m, parameters, frozenset(both.slugs)), rng


def class_cases(kind, classes, seed, count):
    for i in range(count):
        make = classes[(seed + i) % len(classes)]
        rng = generator(kind, make.__name__, seed + i)
        m, parameters = make.prepare(rng, draw(rng, **make.want))
        yield Case(kind, make.__name__, seed + i, m, make, m, parameters, frozenset()), rng


def batch_cases(kind, makers, seed, count):
    """Training batches: the case's `make` gives the arguments of check_batch."""
    expected = frozenset() if kind == "control (batch)" else frozenset([kind.split()[0]])
    for i in range(count):
        make = makers[(seed + i) % len(makers)]
        yield Case(kind, make.__name__, seed + i, None, make, None, {}, expected), generator(
            kind, make.__name__, seed + i)


def cases(kind, seed, count):
    if kind in objective.PLANTED:
        return batch_cases(kind, objective.PLANTED[kind], seed, count)
    if kind == "control (batch)":
        return batch_cases(kind, objective.CONTROLS, seed, count)
    if kind == "declaration":
        return declaration_cases(seed, count)
    if kind == "pair":
        return pair_cases(seed, count)
    if kind == "uncatalogued":
        return class_cases(kind, others.UNCATALOGUED, seed, count)
    if kind == "control":
        return class_cases(kind, others.CONTROLS, seed, count)
    return planted_cases(kind, seed, count)


def kinds():
    return [*sorted({f.slug for f in FAULTS}, key=order), *objective.PLANTED]


def order(slug):
    """By group as in the catalogue, then by name."""
    groups = ("mask", "cache", "rope", "pos", "alibi", "head", "score", "pack", "grad")
    return groups.index(slug.split(".")[0]), slug


def is_visible(case, x, got):
    """Whether it differs from the declared meaning by more than ten roundings, as a right run in the type has them."""
    with np.errstate(all="ignore"):
        exact = Attention(case.declared, np.float64).run(x)
        usual = InType(case.declared).run(x)
    for name, y in got.items():
        if not np.array_equal(np.isfinite(y), np.isfinite(exact[name])):
            return True
        here = np.isfinite(exact[name])
        if not here.any():
            continue
        size = np.sqrt(np.mean(exact[name][here] ** 2))
        rounding = max(np.abs(usual[name][here] - exact[name][here]).max(), UNITS[case.declared.type] * size)
        if np.abs(y[here] - exact[name][here]).max() > 10 * rounding:
            return True
    return False


def ask(sl, case, rng):
    """Runs the implementation on PROBES inputs and the package on what came out."""
    if case.declared is None:
        return judged(case, case.kind != "control (batch)", sl.check_batch(**case.make(rng)))
    xs = [draw_inputs(rng, case.done) for _ in range(PROBES)]
    with np.errstate(all="ignore"):
        gots = [case.make(case.done, **case.parameters).run(x) for x in xs]
    visible = any(is_visible(case, x, got) for x, got in zip(xs, gots))
    spec, arguments = declare(sl, case.declared)
    arrays = {name: np.stack([x[name] for x in xs]).astype(np.float64) for name in xs[0]}
    arrays.update({name: np.stack([got[name] for got in gots]).astype(np.float64) for name in gots[0]})
    if case.declared.bias is not None:
        arrays["bias"] = np.stack([case.declared.bias] * PROBES)
    report = sl.diagnose(spec, dtype=case.declared.type, **arguments, **arrays)
    return judged(case, visible, report)


def judged(case, visible, report):
    named = tuple(dict.fromkeys(f.slug for f in report.faults))
    certain = bool(report.faults) and all(f.certain for f in report.faults)
    out = Outcome(case, visible, report.verdict, named, certain, "", report.summary, report)
    if case.kind.startswith("control"):
        out.result = "quiet" if report.ok else "false alarm"
    elif not named:
        out.result = "not seen" if report.ok else "unknown"
    elif report.verdict == "ambiguous":
        out.result = among(case.expected, report.faults)
    else:
        out.result = "named" if set(named) == set(case.expected) else "wrong"
    return out


def among(expected, faults):
    """What an answer of several names is: `equal` where the others predict the same numbers, misfit and all."""
    right = [f.misfit for f in faults if f.slug in expected]
    if not right:
        return "wrong"
    return "equal" if all(np.isclose(f.misfit, right[0], rtol=1e-3) for f in faults) else "ambiguous"


def counts(outcomes):
    """How a list of outcomes came out; those that show nothing are counted apart."""
    seen = [o for o in outcomes if o.visible]
    tally = collections.Counter(o.result for o in seen)
    first = sum(o.result == "ambiguous" and o.named[0] in o.case.expected for o in seen)
    return {"planted": len(outcomes), "visible": len(seen), "named": tally["named"], "equal": tally["equal"],
            "ambiguous": tally["ambiguous"], "ambiguous, right first": first, "wrong": tally["wrong"], "wrong and certain": sum(o.result == "wrong" and o.certain for o in outcomes),
            "unknown": tally["unknown"], "not seen": tally["not seen"]}


def brief(outcomes):
    """One line of numbers."""
    tally = collections.Counter(o.result for o in outcomes)
    return f"{len(outcomes)} asked, {sum(o.visible for o in outcomes)} visible, " + ", ".join(
        f"{n} {result}" for result, n in tally.items())
