"""F. Training objective: batches as a collator makes them, with what it gets wrong. Asked of check_batch."""
import numpy as np

NONE = -100


def batch(rng, pad_is_eos):
    """Rows of unlike lengths; (ids, lengths, labels, attention mask, pad, eos). Ends of text close every row."""
    eos = int(rng.integers(2, 9))
    pad = eos if pad_is_eos else eos + 1
    rows, width = int(rng.integers(2, 6)), int(rng.integers(9, 24))
    lengths = rng.integers(4, width, rows)
    lengths[int(rng.integers(rows))] = width
    ids = rng.integers(10, 100, (rows, width))
    real = np.arange(width)[None, :] < lengths[:, None]
    ids = np.where(real, ids, pad)
    ids[np.arange(rows), lengths - 1] = eos
    return ids, real, np.where(real, ids, NONE), pad, eos


def shifted(labels, by):
    out = np.full_like(labels, NONE)
    out[:, :labels.shape[1] - by] = labels[:, by:]
    return out


def shifted_twice(rng):
    """The loader shifts, and the model shifts again."""
    ids, real, labels, pad, eos = batch(rng, False)
    return dict(input_ids=ids, labels=shifted(labels, 1), attention_mask=real, pad_id=pad, eos_id=eos)


def never_shifted(rng):
    """The loader is to shift, and does not."""
    ids, real, labels, pad, eos = batch(rng, False)
    return dict(input_ids=ids, labels=labels, attention_mask=real, pad_id=pad, eos_id=eos, model_shifts=False)


def ends_masked(rng):
    """pad = eos, and labels are masked by value: genuine ends carry no loss."""
    ids, real, labels, pad, eos = batch(rng, True)
    return dict(input_ids=ids, labels=np.where(ids == pad, NONE, ids), attention_mask=real, pad_id=pad, eos_id=eos)


def pads_trained(rng):
    """Padding carries loss."""
    ids, real, labels, pad, eos = batch(rng, bool(rng.random() < 0.5))
    return dict(input_ids=ids, labels=ids, attention_mask=real, pad_id=pad, eos_id=eos)


def packed(rng):
    ids = rng.integers(10, 100, (2, int(rng.integers(14, 30))))
    segments = np.zeros_like(ids)
    for row in range(2):
        cuts = np.sort(rng.choice(np.arange(3, ids.shape[1] - 3), 2, replace=False))
        segments[row] = np.searchsorted(cuts, np.arange(ids.shape[1]), side="right")
    return ids, segments


def boundary_trained(rng):
    """The last token of a document predicts the first of the next."""
    ids, segments = packed(rng)
    return dict(input_ids=ids, labels=ids, segment_ids=segments)


def mask_of_pairs_leaks(rng):
    """Plain triangles for packed rows."""
    ids, segments = packed(rng)
    n = ids.shape[1]
    return dict(input_ids=ids, segment_ids=segments,
                attention_mask=np.broadcast_to(np.tri(n, dtype=bool), (2, n, n)))


def right_batch(rng):
    ids, real, labels, pad, eos = batch(rng, bool(rng.random() < 0.5))
    return dict(input_ids=ids, labels=labels, attention_mask=real, pad_id=pad, eos_id=eos)


def right_shifted_by_loader(rng):
    """The shift that is missing in the model has moved into the loader."""
    ids, real, labels, pad, eos = batch(rng, False)
    return dict(input_ids=ids, labels=shifted(labels, 1), attention_mask=real, pad_id=pad, eos_id=eos,
                model_shifts=False)


PLANTED = {"loss.label_shift": (shifted_twice, never_shifted),
           "loss.scope": (ends_masked, pads_trained, boundary_trained),
           "pack.cross_document (batch)": (mask_of_pairs_leaks,)}
CONTROLS = (right_batch, right_shifted_by_loader)
