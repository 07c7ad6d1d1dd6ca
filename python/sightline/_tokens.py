"""Positions, segments and padding as the compiled module takes them."""
import numpy as np

from ._core import Tokens, set_segment_starts


def _column(values, count, name):
    if values is None:
        return None
    column = np.ascontiguousarray(values, dtype=np.int64).reshape(-1)
    if column.size == 0 or count % column.size:
        raise ValueError(f"{name} has {column.size} entries, expected {count}")
    return np.tile(column, count // column.size)


def make_tokens(q_len, kv_len, num_sequences=1, *, q_pos=None, kv_pos=None, q_rope_pos=None, kv_rope_pos=None,
                q_segment=None, kv_segment=None, q_span=None, kv_span=None, q_flags=None, kv_flags=None, valid=None,
                q_valid=None):
    """Tokens of queries and keys: `num_sequences` of q_len and kv_len each.

    Arrays have one entry a token of one sequence, which then serves all, or of all sequences. A key that is not
    `valid` is padding, and so is the query at its place (or one that is not `q_valid`); padding takes no position.
    """
    num_q, num_kv = q_len * num_sequences, kv_len * num_sequences
    valid = _column(valid, num_kv, "valid")
    if kv_pos is None:
        real = np.ones(num_kv, np.int64) if valid is None else (valid != 0).astype(np.int64)
        counted = np.cumsum(real.reshape(num_sequences, kv_len), axis=1) - real.reshape(num_sequences, kv_len)
        kv_pos = counted.reshape(-1)
    kv_pos = _column(kv_pos, num_kv, "kv_pos")

    def tail(column):
        """The last q_len tokens of each sequence."""
        if column is None or q_len > kv_len:
            return None
        return np.ascontiguousarray(column.reshape(num_sequences, kv_len)[:, kv_len - q_len:]).reshape(-1)

    kv_segment = _column(kv_segment, num_kv, "kv_segment")
    kv_span, kv_flags = _column(kv_span, num_kv, "kv_span"), _column(kv_flags, num_kv, "kv_flags")
    kv_rope_pos = _column(kv_rope_pos, num_kv, "kv_rope_pos")
    follows = q_pos is None
    if follows and q_len > kv_len:
        raise ValueError(f"{q_len} queries on {kv_len} keys: give q_pos, they cannot all be the last tokens")
    q_pos = tail(kv_pos) if follows else _column(q_pos, num_q, "q_pos")

    def of_queries(given, column, name):
        return _column(given, num_q, name) if given is not None else tail(column)

    q_rope_pos = of_queries(q_rope_pos, kv_rope_pos if follows else None, "q_rope_pos")
    q = Tokens(q_pos, q_rope_pos, of_queries(q_segment, kv_segment, "q_segment"),
               of_queries(q_span, kv_span, "q_span"), of_queries(q_flags, kv_flags, "q_flags"),
               _column(q_valid, num_q, "q_valid") if q_valid is not None else tail(valid) if follows else None)
    kv = Tokens(kv_pos, kv_rope_pos, kv_segment, kv_span, kv_flags, valid)
    set_segment_starts(q, kv, num_sequences)
    return q, kv
