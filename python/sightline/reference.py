"""The float64 oracle: attention written straight from the spec, forward and backward. Slow on purpose."""
import numpy as np

from . import _core
from ._tokens import make_tokens


def _inputs(spec, q, k, v, bias, tokens):
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    q_tokens, kv_tokens = make_tokens(q.shape[0], k.shape[0], **tokens)
    if bias is not None:
        bias = np.broadcast_to(np.asarray(bias, np.float64), (spec.num_q_heads, q.shape[0], k.shape[0]))
    return q, k, v, q_tokens, kv_tokens, bias


def attention(q, k, v, spec, *, bias=None, **tokens):
    """(out, lse, weights) of one sequence in float64; arguments as sightline.attention."""
    q, k, v, q_tokens, kv_tokens, bias = _inputs(spec, q, k, v, bias, tokens)
    return _core.oracle_forward(spec, q, k, v, q_tokens, kv_tokens, bias)


def attention_backward(q, k, v, d_out, spec, *, bias=None, **tokens):
    """(d_q, d_k, d_v) of one sequence in float64, of q and k before rotation."""
    q, k, v, q_tokens, kv_tokens, bias = _inputs(spec, q, k, v, bias, tokens)
    return _core.oracle_backward(spec, q, k, v, np.asarray(d_out, np.float64), q_tokens, kv_tokens, bias)
