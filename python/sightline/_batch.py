"""check_batch: what a training batch means."""
import json

import numpy as np

from . import _core
from ._arrays import integers, to_numpy
from ._report import report_from


def _column(x, name, shape):
    if x is None:
        return None
    x = integers(x, name)
    if x.shape != shape:
        raise ValueError(f"{name} has shape {list(x.shape)}, expected {list(shape)}")
    return x


def check_batch(input_ids, labels=None, attention_mask=None, position_ids=None, *, segment_ids=None, is_prompt=None,
                pad_id=None, eos_id=None, ignore_index=-100, mask="causal & segment", model_shifts=True,
                positions_restart=True, prompt="in", next_document="out"):
    """Holds a training batch against the declared objective, without running anything: a Report.

    input_ids, labels, position_ids, segment_ids, is_prompt   [rows, tokens], numpy or torch
    attention_mask     [rows, tokens], 1 for real tokens; or [rows, tokens, tokens] (or with an axis of 1 for heads),
                       True where the query sees the key
    pad_id, eos_id     find padding and ends of text where no mask, positions or segments tell them
    mask               the declared mask; "causal" says that documents may read each other
    model_shifts       labels are the tokens themselves, and the model shifts (Hugging Face); False: the loader did
    positions_restart  with each document
    prompt             "in" or "out": whether prompt tokens carry loss
    next_document      "out" or "in": whether the last token of a document predicts the first of the next

    Names loss.label_shift, loss.scope, pack.cross_document, pack.position_reset, pos.left_padding,
    mask.padding_ignored, mask.causal_dropped; counts tokens, targets and documents. ValueError for arrays that do
    not fit.
    """
    ids = integers(input_ids, "input_ids")
    if ids.ndim != 2:
        raise ValueError(f"input_ids has shape {list(ids.shape)}, expected [rows, tokens]")
    pairs = None
    if attention_mask is not None:
        attention_mask = to_numpy(attention_mask)
        if attention_mask.ndim == 4 and attention_mask.shape[1] == 1:
            attention_mask = attention_mask[:, 0]
        if attention_mask.ndim == 3:
            if attention_mask.dtype.kind == "f":
                raise ValueError("attention_mask is an additive float mask, expected bool: give mask == 0")
            pairs, attention_mask = attention_mask, None
    columns = {"labels": labels, "attention_mask": attention_mask, "position_ids": position_ids,
               "segment_ids": segment_ids, "is_prompt": is_prompt}
    columns = {name: _column(x, name, ids.shape) for name, x in columns.items()}
    pairs = _column(pairs, "attention_mask", (*ids.shape, ids.shape[1]))
    loss = json.dumps({"prompt": prompt, "next_document": next_document})
    return report_from(*_core.check_batch(
        num_rows=ids.shape[0], num_tokens=ids.shape[1], input_ids=ids, **columns, pair_mask=pairs, pad_id=pad_id,
        eos_id=eos_id, ignore_index=ignore_index, mask=mask, loss=loss, model_shifts=model_shifts,
        positions_restart=positions_restart))
