"""Pictures of masks, and reasons."""
import numpy as np

from . import _core
from ._tokens import make_tokens


def _tokens(q_pos, kv_pos, options):
    kv_pos = list(kv_pos)
    q_pos = kv_pos if q_pos is None else list(q_pos)
    return make_tokens(len(q_pos), len(kv_pos), q_pos=np.array(q_pos), kv_pos=np.array(kv_pos), **options)


def draw(mask, *, q_pos=None, kv_pos, labels=False, **tokens):
    """The 0/1 picture of a mask: one line a query, one column a key; 1 is visible."""
    q, kv = _tokens(q_pos, kv_pos, tokens)
    return _core.draw(mask, q, kv, labels)


def visible(mask, *, q_pos=None, kv_pos, **tokens):
    """[queries, keys] of bool, True is visible: the definition of the mask, pair by pair. Cost: one test a pair."""
    q, kv = _tokens(q_pos, kv_pos, tokens)
    return _core.visible(mask, q, kv).view(bool)


def why(mask, q_row, kv_row, *, q_pos=None, kv_pos, **tokens):
    """Which rule decided that the query of one row sees, or does not see, the key of another."""
    q, kv = _tokens(q_pos, kv_pos, tokens)
    return _core.why(mask, q, kv, q_row, kv_row)
