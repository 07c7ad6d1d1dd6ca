"""Attention by the engine, and its gradients."""
import numpy as np

from . import _core, reference
from ._arrays import engine_array, like, per_sequence, sizes, to_numpy
from ._core import attention_forward
from ._spec import spec_for, uses_dense, with_dense
from ._tokens import make_tokens


def score_arrays(spec, bias, dense, batch, q_len, kv_len, dtype=np.float32):
    """(spec, bias [batch, heads, q_len, kv_len], dense [batch, q_len, kv_len]) as the compiled module takes them.

    A matrix of its own for each head has no form as a rule; it becomes a bias of minus infinity.
    """
    heads = spec.num_q_heads
    if bias is not None:
        bias = per_sequence(bias, "bias", batch, heads, q_len, kv_len, dtype)
    if dense is None:
        return spec, bias, None
    by_head = dense.ndim == 4 and dense.shape[1] != 1
    table = per_sequence(dense, "dense", batch, heads if by_head else 1, q_len, kv_len, np.uint8)
    if by_head:
        if uses_dense(spec):
            raise ValueError(f"dense has a matrix for each head, and the mask {spec.mask!r} has the rule dense: "
                             "give one matrix, or a mask without the rule")
        hidden = np.where(table, dtype(0), dtype(-np.inf))
        return spec, hidden if bias is None else bias + hidden, None
    return (spec if uses_dense(spec) else with_dense(spec)), bias, table[:, 0]


def _prepared(q, k, v, spec, bias, dense, tokens, dtype=np.float32):
    """(spec, bias, dense, q_tokens, kv_tokens) of a call, as the compiled module takes them."""
    batch, q_len = sizes(q, "q")
    kv_len = sizes(k, "k")[1]
    arrays = score_arrays(spec_for(q, k, v, spec), bias, dense, batch, q_len, kv_len, dtype)
    return (*arrays, *make_tokens(q_len, kv_len, batch, **tokens))


def attention(q, k, v, spec, *, bias=None, dense=None, rope_length=0, return_lse=False, num_threads=0, **tokens):
    """Attention by the engine, computed in f32.

    out[i, h] = sum_j p[i, h, j] v[j, g], p the softmax of the scores that the spec's mask lets query i see.

    q, k, v      [tokens, heads, dim] or [batch, tokens, heads, dim]; before rotation. float32 without a copy;
                 float16 and bfloat16 are widened, and the result is rounded back to them
    spec         an AttentionSpec, or the text of a mask such as "causal & window(256)" with the arrays' heads
    bias         added to scores after scale and softcap; broadcasts to [batch, num_q_heads, q_len, kv_len];
                 minus infinity hides
    dense        bool, True is visible, broadcasts to the same; what the mask's rule `dense` says, or joined to
                 the mask with & when it has no such rule
    rope_length  tokens the sequences are set up for, for scalings that depend on it
    tokens       q_pos, kv_pos, q_rope_pos, kv_rope_pos, q_segment, kv_segment, q_span, kv_span, q_flags, kv_flags,
                 valid, q_valid; queries without positions are the last tokens of the keys

    A query that sees no key gives 0. Bits do not depend on batch, chunking or num_threads (0: all cores).
    The interpreter's lock is free meanwhile. ValueError for what does not fit. A torch tensor gives torch tensors,
    anything else numpy. Cost: proportional to the visible pairs for masks made of ranges.
    """
    spec, bias, dense, q_tokens, kv_tokens = _prepared(q, k, v, spec, bias, dense, tokens)
    arrays = [engine_array(x, name) for x, name in ((q, "q"), (k, "k"), (v, "v"))]
    out, lse = attention_forward(spec, *arrays, q_tokens, kv_tokens, bias, dense, rope_length, num_threads)
    shape = tuple(arrays[0].shape)[:-1]
    out = like(out.reshape(*shape, spec.v_head_dim), q)
    return (out, like(lse.reshape(shape), lse)) if return_lse else out


def attention_backward(q, k, v, d_out, spec, *, out=None, lse=None, d_lse=None, bias=None, dense=None, rope_length=0,
                       num_threads=0, **tokens):
    """Gradients of `attention` by the engine, accumulated in f32: fused, recomputing, on all cores.

    d_out     as the output of `attention`; d_lse as its log-sum-exps, or None
    out, lse  what `attention` gave for the same arguments; computed again where one is not given
    others    as in `attention`

    Returns Gradients(d_q, d_k, d_v, d_bias, d_alibi_slopes, d_sink_logits) in float32: of q and k before rotation, of
    k and v without repeating them for their query heads, of the bias in its own shape (one that is broadcast over heads
    or tokens is summed on one thread). None for what the call does not have. Entries that no visible pair reaches are
    exactly 0. Bits do not depend on num_threads. A torch tensor gives torch tensors, anything else numpy.
    sl.reference.attention_backward is the same in float64, by the oracle.
    Cost: 2.5 times the forward; memory of the packed queries, not of pairs.
    """
    if out is None or lse is None:
        out, lse = attention(q, k, v, spec, bias=bias, dense=dense, rope_length=rope_length, return_lse=True,
                             num_threads=num_threads, **tokens)
    bias_shape = None if bias is None else np.shape(to_numpy(bias))
    spec, bias, dense, q_tokens, kv_tokens = _prepared(q, k, v, spec, bias, dense, tokens)
    arrays = [engine_array(x, name) for x, name in ((q, "q"), (k, "k"), (v, "v"), (out, "out"))]
    upstream = engine_array(d_out, "d_out")
    lse, d_lse = (None if x is None else np.ascontiguousarray(to_numpy(x, np.float32)).reshape(-1, spec.num_q_heads)
                  for x in (lse, d_lse))
    wide = [] if bias_shape is None else [1] * (4 - len(bias_shape)) + list(bias_shape)
    *grads, d_bias, slopes, sinks = _core.attention_backward(
        spec, *arrays, lse, upstream, d_lse, q_tokens, kv_tokens, bias, wide, dense, rope_length, num_threads)
    d_q, d_k, d_v = (like(g.reshape(tuple(a.shape)), x) for g, a, x in zip(grads, arrays, (q, k, v)))
    return reference.Gradients(d_q, d_k, d_v, None if bias_shape is None else like(d_bias.reshape(bias_shape), lse),
                               slopes if slopes.size else None, sinks if sinks.size else None)


def oracle_backward(q, k, v, d_out, spec, *, d_lse=None, bias=None, dense=None, rope_length=0, **tokens):
    """attention_backward for float64, sequence by sequence, as float64 numpy arrays."""
    (batch, q_len), kv_len = sizes(q, "q"), sizes(k, "k")[1]
    bias_shape = None if bias is None else np.shape(to_numpy(bias))
    spec, bias, dense, q_all, kv_all = _prepared(q, k, v, spec, bias, dense, tokens, np.float64)
    arrays = [to_numpy(x, np.float64) for x in (q, k, v, d_out)]
    shapes = [x.shape for x in arrays]
    rows = [x.reshape(batch, *x.shape[-3:]) for x in arrays]
    if d_lse is not None:
        d_lse = to_numpy(d_lse, np.float64).reshape(batch, q_len, -1)
    each = []
    for b in range(batch):
        each.append(reference.backward_of(
            spec, *(x[b] for x in rows), None if d_lse is None else d_lse[b],
            q_all.slice(b * q_len, q_len), kv_all.slice(b * kv_len, kv_len),
            None if bias is None else bias[b], None if dense is None else dense[b], rope_length))
    d_q, d_k, d_v = (np.stack([e[i] for e in each]).reshape(shapes[i]) for i in range(3))
    d_bias = None if bias_shape is None else sum_to(np.stack([e.d_bias for e in each]), bias_shape)
    slopes, sinks = (None if each[0][i] is None else np.sum([e[i] for e in each], axis=0) for i in (4, 5))
    return reference.Gradients(d_q, d_k, d_v, d_bias, slopes, sinks)


def sum_to(x, shape):
    """`x` summed over the axes along which an array of `shape` was broadcast."""
    x = x.sum(axis=tuple(range(x.ndim - len(shape))))
    wide = tuple(i for i, size in enumerate(shape) if size == 1 and x.shape[i] != 1)
    return x.sum(axis=wide, keepdims=True) if wide else x
