"""diagnose and what it returns."""
import json
from dataclasses import dataclass, field

import numpy as np

from . import _core
from ._arrays import real_numbers, to_numpy
from ._tokens import make_tokens


@dataclass(frozen=True)
class Fault:
    """A fault that explains what was seen; `slug` is its name in the catalogue."""
    slug: str
    variant: str
    what: str
    parameters: dict
    misfit: float
    certain: bool
    idiom: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Report:
    """The verdict and what led to it; `str(report)` is the text for people, `report.html` one page for a browser."""
    verdict: str
    summary: str
    faults: list
    evidence: list
    next_probe: object
    first_difference: object
    visible_set: object
    blind_spots: list
    ranked: list
    row_errors: list
    text: str = field(repr=False)
    html: str = field(repr=False)

    def __str__(self):
        return self.text

    @property
    def ok(self):
        """True for agrees, rounding and convention."""
        return self.verdict in ("agrees", "rounding", "convention")


def report_from(document, text, html):
    """A Report from the JSON, the text and the page of the compiled module."""
    report = json.loads(document)
    faults = [Fault(f["slug"], f.get("variant", ""), f["what"], f["parameters"], f["misfit"], f["certain"],
                    f.get("idiom", ""), f.get("fix", "")) for f in report["faults"]]
    return Report(report["verdict"], report["summary"], faults, report["evidence"], report["next_probe"],
                  report["first_difference"], report["visible_set"], report["blind_spots"], report["ranked"],
                  report["row_errors"], text, html)


_TYPES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
_OUTPUTS = ("out", "lse", "weights", "d_q", "d_k", "d_v")


def _observation(spec, arrays, call_begins, tokens, type_name, rope_length):
    q_len, kv_len = np.shape(arrays["q"])[0], np.shape(arrays["k"])[0]
    q_tokens, kv_tokens = make_tokens(q_len, kv_len, **tokens)
    observation = _core.Observation(spec, type_name, q_tokens, kv_tokens, list(call_begins or ()), rope_length)
    for name, array in arrays.items():
        observation.set(name, real_numbers(array, name).reshape(-1))
    return observation


def diagnose(spec, *, q, k, v, call_begins=None, dtype=None, follows="", rope_length=0, bias=None, dense=None,
             draft_parents=None, d_out=None, out=None, lse=None, weights=None, d_q=None, d_k=None, d_v=None, **tokens):
    """Explains arrays that someone else computed: which fault, if any, turns the declared meaning into them.

    q, k, v      [tokens, heads, dim] before rotation, or [batch, tokens, heads, dim]: rows are probes
    out, ...     at least one of out, lse [tokens, heads], weights [heads, queries, keys], d_q, d_k, d_v (with d_out)
    call_begins  rows of q at which chunks begin, when the queries came in several calls
    bias         [heads, queries, keys], added to scores; one for each probe or one for all
    dense        [queries, keys] bool, True is visible, for masks that say `dense`; the same
    draft_parents
                 for masks that say `tree`: the parent of each draft, -1 for a root, [drafts]; the drafts are the last
                 keys and queries, in this order, and stand at their depths (q_pos, kv_pos)
    dtype        "f32", "bf16", "f16" or "f64": what they were computed in; by default the type of the outputs
    follows      "torch", "onnx", "flash_attn" or "jax": what that library documents is a convention, no fault
    rope_length  tokens that the sequence is set up for, of rotations that depend on it, as in `attention`
    tokens       positions, segments, padding as in `attention`

    Only two probes or more make a fault certain. ValueError for what does not fit together.
    """
    arrays = {"q": q, "k": k, "v": v, "d_out": d_out, "out": out, "lse": lse, "weights": weights,
              "d_q": d_q, "d_k": d_k, "d_v": d_v}
    given = {name: str(getattr(x, "dtype", "float64")).removeprefix("torch.") for name, x in arrays.items()
             if x is not None}
    arrays = {name: to_numpy(x) for name, x in arrays.items() if x is not None}
    if dtype is None:
        seen = [given[name] for name in _OUTPUTS if name in given]
        dtype = _TYPES.get(seen[0], "f32") if seen else "f32"
        if dtype == "f64" and given["q"] != "float64":
            dtype = "f32"
    if dtype not in _TYPES.values():
        raise ValueError(f"dtype is {dtype!r}, expected one of f64, f32, bf16, f16")
    for name, x, ndim in (("bias", bias, 3), ("dense", dense, 2)):
        if x is not None:
            pairs = (arrays["q"].shape[-2],) * (ndim - 2) + (arrays["q"].shape[-3], arrays["k"].shape[-3])
            arrays[name] = np.broadcast_to(to_numpy(x), (*arrays["q"].shape[:-3], *pairs))
    if arrays["q"].ndim == 4:
        rows = [{name: x[b] for name, x in arrays.items()} for b in range(arrays["q"].shape[0])]
    else:
        rows = [arrays]
    if draft_parents is not None:
        rows = [{**row, "draft_parents": np.asarray(to_numpy(draft_parents), np.int64)} for row in rows]
    observations = [_observation(spec, row, call_begins, tokens, dtype, rope_length) for row in rows]
    return report_from(*_core.diagnose(observations, follows))
