"""check_gradient: a gradient that a test of differences calls wrong. Says which of the two it is, gradient or test.

The test is repeated as it was, in its own type and with its own step, and beside it in float64 over a sweep of steps.
"""
import numpy as np

from . import _core
from ._arrays import is_torch, to_numpy
from ._report import _TYPES, report_from

_SLUG = "grad.check_misuse"
_STEPS = 10.0 ** -np.arange(1, 8)
_MAX_COMPONENTS = 48   # of each input
_ROUNDINGS = 64        # of an output, in its last place: what the arithmetic of a function may lose
_SPREADS = 20          # of the sweep's own uncertainty: what differences in float64 may be off by
_EXACT = 1e-5          # of the largest derivative: a gradient in float64 that differs by more is wrong
_SIGNIFICANDS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}


class _Tested:
    """The function in one type: outputs and gradients as float64 arrays, inputs moved by a component at a time."""

    def __init__(self, fn, gradient, inputs, wide, d_out=None):
        self.fn, self.gradient, self.torch = fn, gradient, is_torch(inputs[0])
        self.inputs = [self._widened(x) if wide else x for x in inputs]
        self.d_out = d_out

    def _widened(self, x):
        return x.detach().double() if self.torch else np.asarray(x, np.float64)

    def _numbers(self, x):
        return to_numpy(x).astype(np.float64)  # a copy: the function may give the same array again

    def out(self, inputs=None):
        got = self.fn(*(self.inputs if inputs is None else inputs))
        got = got[0] if isinstance(got, (tuple, list)) else got
        self.type = _TYPES.get(str(got.dtype).removeprefix("torch."), "f32")
        return self._numbers(got)

    def difference(self, which, component, step):
        """(out at x + step) - (out at x - step), and the distance of the two x that the type holds."""
        outs, places = [], []
        for sign in (1, -1):
            inputs = list(self.inputs)
            x = inputs[which].detach().clone() if self.torch else np.array(inputs[which])
            flat = x.reshape(-1)
            flat[component] = flat[component] + sign * step
            places.append(float(self._numbers(x).reshape(-1)[component]))
            inputs[which] = x
            outs.append(self.out(inputs))
        return outs[0] - outs[1], places[0] - places[1]

    def gradients(self):
        """d/dx of sum(out * d_out) of each input, by the caller's function or by autograd; 0 where there is none."""
        if self.gradient is not None:
            like = self.inputs[0]
            d_out = self.d_out
            if self.torch:
                import torch

                d_out = torch.from_numpy(np.array(d_out)).to(like.dtype)
            else:
                d_out = d_out.astype(like.dtype)
            got = self.gradient(*self.inputs, d_out)
            got = got if isinstance(got, (tuple, list)) else (got,)
            if len(got) != len(self.inputs):
                raise ValueError(f"gradient gave {len(got)} arrays for {len(self.inputs)} inputs")
            return [self._numbers(g) for g in got]
        import torch

        inputs = [x.detach().clone().requires_grad_() for x in self.inputs]
        with torch.enable_grad():
            out = self.fn(*inputs)
            out = out[0] if isinstance(out, (tuple, list)) else out
            grads = torch.autograd.grad(out, inputs, torch.from_numpy(np.array(self.d_out)).to(out.dtype),
                                        allow_unused=True)
        return [np.zeros(x.shape) if g is None else self._numbers(g) for g, x in zip(grads, inputs)]


class _Compared:
    """Derivatives of one input's components: as tested, in float64, and what the test's own rounding allows."""

    def __init__(self):
        self.own, self.exact, self.tested, self.wide, self.allowed, self.truncated, self.ulps = ([] for _ in range(7))
        self.index = []


def _last_place(out, type_name):
    """The distance of neighbouring numbers of the type at each output, f16's smallest normal number at least."""
    size = np.maximum(np.abs(out), 2.0 ** -14)
    return 2.0 ** (np.floor(np.log2(size)) - _SIGNIFICANDS[type_name] + 1)


def _best_difference(wide, which, component):
    """(derivative along d_out, its uncertainty): the step of a sweep between whose neighbours it moves least."""
    values = []
    for step in _STEPS:
        moved, width = wide.difference(which, component, step)
        values.append(float((moved * wide.d_out).sum() / width))
    spreads = np.abs(np.diff(values))
    best = int(np.argmin(spreads))
    return values[best + 1], float(spreads[best])


def _relative(difference, scale):
    return float(np.nan_to_num(np.abs(difference), nan=np.inf).max(initial=0.0) / scale)


def check_gradient(fn, *inputs, gradient=None, eps=1e-6, tolerance=1e-3, names=None, seed=0):
    """Whether a test of differences that fails is right: is the gradient wrong, or the test? A Report.

    fn         fn(*inputs) -> an array (or a tuple, whose first is looked at); it must take float64 inputs as well and
               then compute in float64
    inputs     numpy arrays or torch tensors, in the type in which the test ran
    gradient   gradient(*inputs, d_out) -> a gradient for each input, of sum(out * d_out); None: autograd of torch
    eps        the step of the test, as of torch's gradcheck
    tolerance  relative to the largest derivative of an input: beyond it the test says that the gradient is wrong
    names      of the inputs, for the report

    d_out is random. (f(x + eps) - f(x - eps)) / 2 eps is taken twice: as the test takes it, and in float64 for the step
    of a sweep between whose neighbours it moves least. Where the gradient in float64 is that of float64 differences and
    the test fails, the test is at fault, `grad.check_misuse`: its differences are a few units in the last place of the
    outputs over 2 eps (quantised), its step is too wide (wide_step), or the gradient is computed in a type too narrow
    for the tolerance (narrow_type). Otherwise the gradient is: `grad.severed` where it is 0, or `unknown` with the
    component that differs first. At most 48 components an input are looked at.

    ValueError: no inputs, numpy without `gradient`, an `fn` that computes in another type when it is given float64.
    """
    if not inputs:
        raise ValueError("check_gradient needs the inputs of the function")
    if gradient is None and not is_torch(inputs[0]):
        raise ValueError("check_gradient: arrays of numpy need gradient=, a function of the inputs and d_out")
    if eps <= 0 or tolerance <= 0:
        raise ValueError(f"eps is {eps} and tolerance {tolerance}, expected numbers above 0")
    rng = np.random.default_rng(seed)
    names = list(names or (f"input {i}" for i in range(len(inputs))))
    own, wide = _Tested(fn, gradient, inputs, False), _Tested(fn, gradient, inputs, True)
    out = wide.out()
    if wide.type != "f64":
        raise ValueError(f"check_gradient: with float64 inputs the function answers in {wide.type}: it cannot be told "
                         "apart from its rounding (give one that computes in the type of its inputs)")
    own.out()
    d_out = rng.standard_normal(out.shape)
    own.d_out = wide.d_out = d_out
    own_gradients, gradients = own.gradients(), wide.gradients()
    compared = []
    for which, name in enumerate(names):
        size = int(np.prod(inputs[which].shape))
        part = _Compared()
        for component in sorted(rng.permutation(size)[:_MAX_COMPONENTS].tolist()):
            moved, _ = own.difference(which, component, eps)
            part.index.append(component)
            part.own.append(float((moved * d_out).sum() / (2 * eps)))
            place = _last_place(out, own.type)
            part.ulps.append(np.median(np.abs(moved) / place))
            part.allowed.append(float((np.abs(d_out) * place).sum() * _ROUNDINGS / (2 * eps)))
            moved, _ = wide.difference(which, component, eps)
            part.truncated.append(float((moved * d_out).sum() / (2 * eps)))
            exact, spread = _best_difference(wide, which, component)
            part.exact.append((exact, spread))
            part.tested.append(own_gradients[which].reshape(-1)[component])
            part.wide.append(gradients[which].reshape(-1)[component])
        compared.append(part)
    return _judge(compared, names, own.type, eps, tolerance, inputs,
                  f"import sightline as sl\n\nsl.check_gradient(fn, *inputs, gradient=gradient, eps={eps}, "
                  f"tolerance={tolerance}, seed={seed})")


def _judge(compared, names, own_type, eps, tolerance, inputs, reproducer):
    evidence, faults, difference, verdict, summary = [], [], None, "agrees", ""
    failing, wrong = [], []
    for part, name, x in zip(compared, names, inputs):
        exact, spread = (np.array(y) for y in zip(*part.exact))
        own, tested, wide, truncated = (np.array(y) for y in (part.own, part.tested, part.wide, part.truncated))
        scale = max(np.abs(exact).max(), np.abs(wide).max()) or 1.0
        own_scale = max(np.abs(own).max(), np.abs(tested).max())
        own_scale = own_scale if np.isfinite(own_scale) and own_scale > 0 else 1.0
        in_float64 = np.abs(wide - exact) - _SPREADS * spread
        test = _relative(own - tested, own_scale)
        evidence += [(f"{name}: relative difference in the test, {own_type} with step {eps:g}", test),
                     (f"{name}: relative difference in float64", _relative(wide - exact, scale)),
                     (f"{name}: units in the last place by which an output moves in the test", np.median(part.ulps))]
        if in_float64.max() > _EXACT * scale:
            worst = int(in_float64.argmax())
            index = [int(i) for i in np.unravel_index(part.index[worst], tuple(x.shape))]
            wrong.append((name, index, exact[worst], wide[worst], not wide.any()))
        elif test > tolerance:
            failing.append((name, test, _why(own, exact, tested, wide, truncated, np.array(part.allowed), tolerance,
                                             scale), np.median(part.ulps)))
    if wrong:
        name, index, expected, got, is_severed = wrong[0]
        difference = (f"d_{name}", index, expected, got)
        verdict = "unknown"
        summary = f"unknown: the gradient of {name} is not that of differences in float64: the test is right"
        if is_severed:
            words = f"no gradient reaches {name}, and the output depends on it"
            verdict, summary = "fault", f"fault: grad.severed: {words}"
            faults.append(("grad.severed", "", words, [], 0.0, True))
    elif failing:
        name, test, variant, ulps = failing[0]
        words = {"quantised": f"differences in {own_type} over a step of {eps:g} are units in the last place of outputs",
                 "wide_step": f"the step {eps:g} of the differences is too wide for the curvature",
                 "narrow_type": f"the gradient or the function is too coarse in {own_type} for the tolerance",
                 "": "the test differs from itself in float64, in which the gradient is right"}[variant]
        parameters = [("step", eps, "of the test"), ("units", float(ulps), "in the last place that an output moves by"),
                      ("difference", test, "relative, that the test reports")]
        verdict = "fault"
        summary = f"fault: {_SLUG}{'/' + variant if variant else ''}: the gradient is right, and {words}"
        faults.append((_SLUG, variant, "the gradient is right, and " + words, parameters, 0.0, bool(variant)))
    else:
        summary = "agrees: the gradient is that of differences in float64, and the test says so"
    return report_from(*_core.make_report(
        verdict=verdict, summary=summary, faults=faults, evidence=[(what, float(x)) for what, x in evidence],
        next_probe="", first_difference=difference, blind_spots=[],
        declared=f"the gradient of a function of {', '.join(names)}", reproducer=reproducer))


def _why(own, exact, tested, wide, truncated, allowed, tolerance, scale):
    """Which of the test's parts explains what it sees: its step, the type of its differences, that of the gradient."""
    of_step, of_gradient = np.abs(truncated - exact).max(), np.abs(tested - wide).max()
    of_differences = np.abs(own - truncated)
    if not np.isfinite(own).all() or not np.isfinite(tested).all():
        return "narrow_type"  # it overflows there
    most = max(of_step, of_gradient, of_differences.max())
    if most <= tolerance * scale / 2:
        return ""
    if most == of_step:
        return "wide_step"
    if most == of_gradient:
        return "narrow_type"
    return "quantised" if (of_differences <= allowed).all() else ""
