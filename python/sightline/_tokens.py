"""Positions, segments and padding as the compiled module takes them."""
import numpy as np

from ._arrays import integers
from ._core import Tokens, set_segment_starts


def _column(values, count, name, num_sequences=1):
    """`values` of one sequence or of all, as one whole number a token; `count` tokens in all."""
    if values is None:
        return None
    column = integers(values, name).reshape(-1)
    if column.size == count:
        return column
    if column.size * num_sequences != count:
        one = "" if num_sequences == 1 else f" or {count // num_sequences}"
        raise ValueError(f"{name} has {column.size} entries, expected {count}{one}")
    return np.tile(column, num_sequences)


def _check_flags(values, name):
    """An additive mask, 0 for real tokens, would be read as its opposite."""
    if values is not None and not np.isin(integers(values, name), (0, 1)).all():
        raise ValueError(f"{name} has entries other than 0 (padding) and 1")


def make_tokens(q_len, kv_len, num_sequences=1, *, q_pos=None, kv_pos=None, q_rope_pos=None, kv_rope_pos=None,
                q_segment=None, kv_segment=None, q_span=None, kv_span=None, q_flags=None, kv_flags=None, valid=None,
                q_valid=None):
    """Tokens of queries and keys: `num_sequences` of q_len and kv_len each.

    Arrays have one entry a token of one sequence, which then serves all, or of all sequences. A key that is not
    `valid` is padding, and so is the query at its place (or one that is not `q_valid`); padding takes no position.
    """
    if num_sequences == 0:
        raise ValueError("the batch is empty: no sequences")
    num_q, num_kv = q_len * num_sequences, kv_len * num_sequences

    def of_keys(given, name):
        return _column(given, num_kv, name, num_sequences)

    valid = of_keys(valid, "valid")
    _check_flags(valid, "valid")
    if kv_pos is None:
        real = np.ones(num_kv, np.int64) if valid is None else (valid != 0).astype(np.int64)
        counted = np.cumsum(real.reshape(num_sequences, kv_len), axis=1) - real.reshape(num_sequences, kv_len)
        kv_pos = counted.reshape(-1)
    kv_pos = of_keys(kv_pos, "kv_pos")

    def tail(column):
        """The last q_len tokens of each sequence."""
        if column is None or q_len > kv_len:
            return None
        return np.ascontiguousarray(column.reshape(num_sequences, kv_len)[:, kv_len - q_len:]).reshape(-1)

    kv_segment, kv_rope_pos = of_keys(kv_segment, "kv_segment"), of_keys(kv_rope_pos, "kv_rope_pos")
    kv_span, kv_flags = of_keys(kv_span, "kv_span"), of_keys(kv_flags, "kv_flags")
    follows = q_pos is None
    if follows and q_len > kv_len:
        raise ValueError(f"{q_len} queries on {kv_len} keys: give q_pos, they cannot all be the last tokens")

    def of_queries(given, column, name):
        return _column(given, num_q, name, num_sequences) if given is not None else tail(column)

    q_pos = of_queries(q_pos, kv_pos, "q_pos")
    _check_flags(q_valid, "q_valid")
    q_rope_pos = of_queries(q_rope_pos, kv_rope_pos if follows else None, "q_rope_pos")
    q = Tokens(q_pos, q_rope_pos, of_queries(q_segment, kv_segment, "q_segment"),
               of_queries(q_span, kv_span, "q_span"), of_queries(q_flags, kv_flags, "q_flags"),
               of_queries(q_valid, valid if follows else None, "q_valid"))
    kv = Tokens(kv_pos, kv_rope_pos, kv_segment, kv_span, kv_flags, valid)
    set_segment_starts(q, kv, num_sequences)
    return q, kv
