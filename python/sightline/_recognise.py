"""From a boolean matrix to rules: which mask, over which positions, documents and flags, says the same.

A candidate is guessed from where rows begin and end, and kept only if the definition of its mask equals the matrix on
every pair. So a wrong guess costs time, and never a wrong mask.
"""
from dataclasses import dataclass, field

import numpy as np

from ._mask import visible

MAX_CLASSES = 32  # bits of a token's flags


@dataclass(frozen=True)
class Found:
    """A mask's text and the tokens' arrays that go with it."""
    mask: str
    tokens: dict = field(default_factory=dict)


def recognise(matrix):
    """A Found that equals the matrix pair by pair, or None. Cost: some tests of a few rows, then one of all."""
    matrix = np.asarray(matrix, bool)
    q_len, kv_len = matrix.shape
    rows = {"q_pos": np.arange(q_len), "kv_pos": np.arange(kv_len)}
    if matrix.all():
        return Found("all", rows)
    if not matrix.any():
        return Found("none", rows)
    sample = np.unique(np.linspace(0, q_len - 1, min(q_len, 24)).astype(int))
    tried = set()
    for found in candidates(matrix):
        key = (found.mask, *(x.tobytes() for x in found.tokens.values()))
        if key in tried:
            continue
        tried.add(key)
        if equals(matrix, found, sample) and equals(matrix, found, np.arange(q_len)):
            return found
    return None


def equals(matrix, found, rows, block=256):
    """True when the mask's definition gives the matrix on these rows."""
    for begin in range(0, len(rows), block):
        part = rows[begin:begin + block]
        tokens = {name: x[part] if name.startswith("q_") else x for name, x in found.tokens.items()}
        if not np.array_equal(visible(found.mask, **tokens), matrix[part]):
            return False
    return True


def candidates(matrix):
    """Guesses, simple ones first."""
    q_len, kv_len = matrix.shape
    shape = Edges(matrix)
    for offset in shape.offsets():
        positions = placed(np.arange(q_len) + offset, np.arange(kv_len))
        for padded in ({}, shape.padding()):
            if padded is None:
                continue
            yield from by_edges(matrix, shape, offset, {**positions, **padded})
    for offset in shape.offsets():
        yield from by_global_tokens(matrix, offset, placed(np.arange(q_len) + offset, np.arange(kv_len)))
    yield from by_classes(matrix, "", np.full(q_len, kv_len), placed(np.arange(q_len), np.arange(kv_len)))
    for offset in shape.offsets():
        reach = np.clip(np.arange(q_len) + offset + 1, 0, kv_len)
        yield from by_classes(matrix, "causal & ", reach, placed(np.arange(q_len) + offset, np.arange(kv_len)))


def placed(q_pos, kv_pos):
    """Positions moved together so that none is negative."""
    least = min(q_pos.min(), 0)
    return {"q_pos": q_pos - least, "kv_pos": kv_pos - least}


class Edges:
    """Where rows begin and end, among the columns of interest."""

    def __init__(self, matrix, columns=None):
        self.kv_len = matrix.shape[1]
        if columns is not None:
            matrix = matrix & columns
        self.seen, self.sees = matrix.any(0), matrix.any(1)
        self.first = np.argmax(matrix, 1)
        self.last = self.kv_len - 1 - np.argmax(matrix[:, ::-1], 1)

    def offsets(self):
        """Distances between row index and position worth trying: none, and that of most rows' last and first keys."""
        i, out = np.arange(len(self.sees)), []
        for edge, free in ((self.last, self.last < self.kv_len - 1), (self.first, self.first > 0)):
            rows = self.sees & free
            if rows.any():
                values, counts = np.unique((edge - i)[rows], return_counts=True)
                out.append(int(values[np.argmax(counts)]))
        square = len(self.sees) == self.kv_len  # else the queries are more likely somewhere among the keys
        return list(dict.fromkeys([0, *out] if square else [*out, 0]))

    def padding(self):
        """Keys that nobody sees and queries that see nothing, as padding; None where there are none."""
        if self.seen.all() and self.sees.all():
            return None
        return {"valid": self.seen.astype(np.int64), "q_valid": self.sees.astype(np.int64)}


def by_edges(matrix, shape, offset, tokens, columns=None):
    """Ahead limits, windows, kept first keys, chunks, documents, spans and steps, in their combinations."""
    pos = np.arange(matrix.shape[0]) + offset
    sees = shape.sees
    if not sees.any():
        return
    segments = list(documents(matrix, shape, pos))
    pasts = list(past_limits(matrix, shape, pos, columns))
    for future, more in future_limits(matrix, shape, pos):
        for past in pasts:
            rule = " & ".join(x for x in (future, past) if x)
            if rule:
                yield Found(rule, {**tokens, **more})
    for segment in segments:
        by_document = {**tokens, **segment}
        for future, more in future_limits(matrix, shape, pos):
            for past in pasts:
                yield Found(" & ".join(x for x in (future, "segment", past) if x), {**by_document, **more})


def future_limits(matrix, shape, pos):
    """How far ahead of its position a query sees."""
    sees, last, kv_len = shape.sees, shape.last, shape.kv_len
    reach = (last - pos)[sees]
    if reach.max() <= 0:
        yield "causal", {}
        return
    j = np.arange(kv_len)
    yield "", {}
    yield f"ahead({reach.max()})", {}
    yield f"(causal | first({last[sees].min() + 1}))", {}
    ahead = matrix & (j > pos[:, None])
    yield "(causal | key_is(0))", {"kv_flags": ahead.any(0).astype(np.int64)}
    spans = np.zeros(len(pos), np.int64)
    inside = np.flatnonzero(sees & (last > pos))
    for row in inside:  # a group ends at the last key that its rows see
        spans[row] = last[row] + 1
    kv_spans = np.zeros(kv_len, np.int64)
    at = {p: s for p, s in zip(pos[inside], spans[inside])}
    for key in range(kv_len):
        kv_spans[key] = at.get(key, 0)
    for span in np.unique(spans[inside]):
        kv_spans[span - 1] = span
    rows_of = {int(p): row for row, p in enumerate(pos)}
    for span in np.unique(spans[inside]):
        if int(span) - 1 in rows_of:
            spans[rows_of[int(span) - 1]] = span
    yield "(causal | span)", {"q_span": spans, "kv_span": kv_spans}


def past_limits(matrix, shape, pos, columns):
    """How far back a query sees."""
    sees, first = shape.sees, shape.first
    back = (pos - first)[sees]
    yield ""
    window = back.max() + 1
    if 0 < window:
        yield f"window({window})"
    visible_part = matrix if columns is None else matrix & columns
    yield from kept_first(visible_part, pos, sees)
    starts = np.unique(first[sees])
    for size in np.unique(np.diff(starts))[:4]:
        yield f"chunk({size})"
    rows = np.flatnonzero(sees)
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), 24)).astype(int))]
    step = 0
    for row in rows:
        step = np.gcd.reduce(np.append(np.abs(pos[row] - np.flatnonzero(visible_part[row])), step))
    if step > 1:
        yield f"dilated({step})"
        if 0 < window:
            yield f"dilated({step}) & window({window})"


def kept_first(matrix, pos, sees):
    """A window beside the first keys of the text: rows in two pieces."""
    steps = np.diff(matrix.astype(np.int8), axis=1)
    two = np.flatnonzero(sees & ((steps == 1).sum(1) + matrix[:, 0] == 2) & matrix[:, 0])
    if two.size == 0:
        return
    row = two[-1]
    num_first = int(np.flatnonzero(steps[row] == -1)[0]) + 1
    begin = int(np.flatnonzero(steps[row] == 1)[-1]) + 1
    if pos[row] - begin >= 0:
        yield f"(first({num_first}) | window({pos[row] - begin + 1}))"


def documents(matrix, shape, pos):
    """Documents by the first key that rows see, and by the rows that see nothing before themselves."""
    sees, first, kv_len = shape.sees, shape.first, shape.kv_len
    if len(np.unique(first[sees])) < 2:
        return
    for q_ids in (np.where(sees, first, -1), np.cumsum(sees & (first == pos))):
        kv_ids = np.where(shape.seen, q_ids[np.argmax(matrix, 0)], -2)
        known = np.unique(np.concatenate([q_ids, kv_ids]))
        yield {"q_segment": np.searchsorted(known, q_ids), "kv_segment": np.searchsorted(known, kv_ids)}


def by_global_tokens(matrix, offset, tokens):
    """Keys that everyone sees and queries that see everything, around a mask for the others."""
    q_len, kv_len = matrix.shape
    pos, j = np.arange(q_len) + offset, np.arange(kv_len)
    ahead = j > pos[:, None]
    for causal in (False, True):
        allowed = ~ahead if causal else np.ones_like(matrix)
        if causal and (matrix & ahead).any():
            continue
        keys = (matrix | ~allowed).all(0)
        queries = (matrix | ~allowed).all(1)
        if causal:  # rows near the start see all that lies before them under any rule
            queries = np.zeros_like(queries)
        if not (keys.any() or queries.any()) or keys.all():
            continue
        rest = matrix & ~queries[:, None]
        shape = Edges(rest, ~keys)
        flags = {"kv_flags": keys.astype(np.int64), "q_flags": queries.astype(np.int64)}
        for base in by_edges(rest, shape, offset, tokens, ~keys):
            mask = f"({base.mask}) | key_is(0)" + (" | query_is(0)" if queries.any() else "")
            more = {**flags, **base.tokens}
            yield Found(f"causal & ({mask})" if causal else mask, more)


def by_classes(matrix, prefix, reach, tokens):
    """Any matrix whose rows are of at most 32 kinds: one flag a kind. Rows count up to `reach` keys."""
    kinds, kind_of, lengths = [], np.zeros(len(matrix), np.int64), []
    for row in np.argsort(-reach, kind="stable"):
        n = reach[row]
        if matrix[row, n:].any():
            return
        for index, kind in enumerate(kinds):
            if np.array_equal(kind[:n], matrix[row, :n]):
                kind_of[row] = index
                break
        else:
            if len(kinds) == MAX_CLASSES:
                return
            kind_of[row] = len(kinds)
            kinds.append(matrix[row].copy())
            lengths.append(n)
    if not kinds:
        return
    kv_flags = np.zeros(matrix.shape[1], np.int64)
    for index, kind in enumerate(kinds):
        kv_flags |= kind.astype(np.int64) << index
    rule = " | ".join(f"query_is({i}) & key_is({i})" for i in range(len(kinds)))
    yield Found(f"{prefix}({rule})" if prefix else rule, {**tokens, "q_flags": 1 << kind_of, "kv_flags": kv_flags})
