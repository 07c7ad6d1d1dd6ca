"""check_loss: what a training step counted and averaged."""
import numpy as np

from . import _core
from ._arrays import to_numpy
from ._report import report_from

_TYPES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}


def _probes(x, name, ndim, kind=np.float64):
    """`x` with an axis of probes in front, length 1 where it serves all; None stays."""
    if x is None:
        return None
    x = np.ascontiguousarray(to_numpy(x), dtype=kind)
    if x.ndim not in (ndim, ndim + 1):
        raise ValueError(f"{name} has shape {list(x.shape)}, expected {ndim} axes, or one of probes in front of them")
    return x if x.ndim == ndim + 1 else x[None]


def check_loss(labels, *, logits=None, hidden=None, head=None, loss=None, d_head=None, micro_batches=None,
               input_ids=None, ignore_index=-100, model_shifts=True, dtype=None):
    """Holds the loss of training steps, or the gradient of the head, against the mean over all targets: a Report.

    labels         [rows, tokens], all rows of the step, padded with ignore_index; numpy or torch
    logits         [rows, tokens, vocabulary], or the two that they are made of:
    hidden, head   [rows, tokens, width] as the head reads them, [vocabulary, width]
    loss, d_head   what came out: a number, d loss / d head; at least one
    micro_batches  [rows]: the micro-batch (or rank) of each row, from 0
    input_ids      [rows, tokens]: tells whether positions to be ignored carry loss
    model_shifts   the output at i is compared with labels[i + 1] (Hugging Face); False: the loader shifted
    dtype          "f32", "bf16", "f16" or "f64"; by default that of loss or d_head, f32 for a Python number

    Any of them may have an axis of probes in front; only two probes or more make a fault certain. Names
    loss.label_shift, loss.normalisation and loss.scope. ValueError for what does not fit.
    """
    seen = d_head if d_head is not None else loss
    if dtype is None:
        dtype = _TYPES.get(str(getattr(seen, "dtype", "float32")).replace("torch.", ""), "f32")
    if dtype not in _TYPES.values():
        raise ValueError(f"dtype is {dtype!r}, expected one of f64, f32, bf16, f16")
    columns = {"labels": _probes(labels, "labels", 2, np.int64),
               "input_ids": _probes(input_ids, "input_ids", 2, np.int64),
               "micro_batches": _probes(micro_batches, "micro_batches", 1, np.int64),
               "logits": _probes(logits, "logits", 3), "hidden": _probes(hidden, "hidden", 3),
               "head": _probes(head, "head", 2), "d_head": _probes(d_head, "d_head", 2),
               "loss": _probes(loss, "loss", 0)}
    given = {name: x for name, x in columns.items() if x is not None}
    if "logits" not in given and not {"hidden", "head"} <= set(given):
        raise ValueError("give logits, or hidden and head")
    count = max(len(x) for x in given.values())
    for name, x in given.items():
        if len(x) not in (1, count):
            raise ValueError(f"{name} has {len(x)} probes, expected {count}")
    observations = []
    for i in range(count):
        one = {name: x[i % len(x)] if x is not None else None for name, x in columns.items()}
        rows, tokens = one["labels"].shape
        vocabulary = len(one["head"]) if one["head"] is not None else one["logits"].shape[-1]
        one["loss"] = None if one["loss"] is None else float(one["loss"])
        observations.append(_core.LossObservation(
            num_rows=rows, num_tokens=tokens, vocab_size=vocabulary, ignore_index=ignore_index,
            hidden_dim=one["hidden"].shape[-1] if one["hidden"] is not None else 0, type=dtype,
            model_shifts=model_shifts, **one))
    return report_from(*_core.check_loss(observations))
