"""The float64 oracle: attention written straight from the spec, forward and backward. Slow on purpose."""
from typing import NamedTuple, Optional

import numpy as np

from . import _core
from ._arrays import per_sequence, to_numpy
from ._spec import spec_for, uses_dense, with_dense
from ._tokens import make_tokens


class Gradients(NamedTuple):
    """Gradients by input; None for what a call does not have."""
    d_q: np.ndarray
    d_k: np.ndarray
    d_v: np.ndarray
    d_bias: Optional[np.ndarray]
    d_alibi_slopes: Optional[np.ndarray]
    d_sink_logits: Optional[np.ndarray]


def _inputs(spec, q, k, v, bias, dense, tokens):
    q, k, v = (to_numpy(x, np.float64) for x in (q, k, v))
    spec = spec_for(q, k, v, spec)
    q_tokens, kv_tokens = make_tokens(q.shape[0], k.shape[0], **tokens)
    shape = (1, spec.num_q_heads, q.shape[0], k.shape[0])
    if bias is not None:
        bias = per_sequence(bias, "bias", *shape, np.float64)[0]
    if dense is not None:
        dense = per_sequence(dense, "dense", 1, 1, *shape[2:], np.uint8)[0, 0]
        spec = spec if uses_dense(spec) else with_dense(spec)
    return spec, q, k, v, q_tokens, kv_tokens, bias, dense


def attention(q, k, v, spec, *, bias=None, dense=None, rope_length=0, **tokens):
    """(out, lse, weights) of one sequence in float64; arguments as sightline.attention."""
    inputs = _inputs(spec, q, k, v, bias, dense, tokens)
    return _core.oracle_forward(*inputs, rope_length)[:3]


def scores(q, k, v, spec, *, bias=None, dense=None, rope_length=0, **tokens):
    """[num_q_heads, q_len, kv_len]: what the softmax sees, after scale, softcap, bias and ALiBi; minus infinity
    where a key is not visible. Arguments as sightline.attention, one sequence."""
    inputs = _inputs(spec, q, k, v, bias, dense, tokens)
    return _core.oracle_forward(*inputs, rope_length)[3]


def attention_backward(q, k, v, d_out, spec, *, d_lse=None, bias=None, dense=None, rope_length=0, **tokens):
    """Gradients of one sequence in float64, of q and k before rotation; arguments as sightline.attention."""
    spec, q, k, v, q_tokens, kv_tokens, bias, dense = _inputs(spec, q, k, v, bias, dense, tokens)
    d_out = to_numpy(d_out, np.float64)
    d_lse = None if d_lse is None else to_numpy(d_lse, np.float64)
    return backward_of(spec, q, k, v, d_out, d_lse, q_tokens, kv_tokens, bias, dense, rope_length)


def backward_of(spec, q, k, v, d_out, d_lse, q_tokens, kv_tokens, bias, dense, rope_length):
    """attention_backward with tokens and arrays as the compiled module takes them."""
    if bias is not None:
        bias = np.ascontiguousarray(bias)  # a gradient for every entry; whoever broadcast it sums
    *grads, d_bias, slopes, sinks = _core.oracle_backward(spec, q, k, v, d_out, d_lse, q_tokens, kv_tokens, bias,
                                                          dense, rope_length)
    return Gradients(*grads, None if bias is None else d_bias.reshape(bias.shape), slopes if slopes.size else None,
                     sinks if sinks.size else None)
