"""attention and its declaration."""
import json

import numpy as np

from ._core import AttentionSpec, attention_forward
from ._tokens import make_tokens


def attention_spec(*, num_q_heads, num_kv_heads=None, qk_head_dim, v_head_dim=None, mask="causal", rope="none",
                   rotary_dim=None, theta=10000.0, softmax_scale=None, logit_softcap=0.0, alibi_slopes=None,
                   sink_logits=None, **more):
    """An AttentionSpec from its most used fields; `more` are whole members of its JSON form.

    rope: "none", "interleaved" (neighbours turn together) or "half_split". ValueError for what does not fit.
    """
    spec = {"heads": {"num_q_heads": num_q_heads, "num_kv_heads": num_kv_heads or num_q_heads,
                      "qk_head_dim": qk_head_dim, "v_head_dim": v_head_dim or qk_head_dim},
            "mask": mask}
    if rope != "none":
        spec["rope"] = {"pairing": rope, "rotary_dim": rotary_dim or qk_head_dim, "theta": float(theta)}
    score = {}
    if softmax_scale is not None:
        score["softmax_scale"] = float(softmax_scale)
    if logit_softcap:
        score["logit_softcap"] = float(logit_softcap)
    if alibi_slopes is not None:
        score["alibi_slopes"] = [float(x) for x in alibi_slopes]
    if sink_logits is not None:
        score["sink_logits"] = [float(x) for x in sink_logits]
    if score:
        spec["score"] = score
    spec.update(more)
    return AttentionSpec.from_json(json.dumps(spec))


def flatten(array, name):
    """[batch, tokens, heads, dim] as [batch * tokens, heads, dim], without a copy where the strides allow it."""
    array = np.asarray(array)
    if array.ndim == 3:
        return array, 1
    if array.ndim != 4:
        raise ValueError(f"{name} has shape {list(array.shape)}, expected [tokens, heads, dim] or "
                         "[batch, tokens, heads, dim]")
    return array.reshape(-1, *array.shape[2:]), array.shape[0]


def attention(q, k, v, spec, *, bias=None, return_lse=False, num_threads=0, **tokens):
    """Attention by the engine, f32.

    out[i, h] = sum_j p[i, h, j] v[j, g], p the softmax of the scores that the spec's mask lets query i see.

    q, k, v  [tokens, heads, dim] or [batch, tokens, heads, dim]; before rotation
    bias     [num_q_heads, query rows, key rows] or broadcastable; minus infinity hides
    tokens   q_pos, kv_pos, q_rope_pos, kv_rope_pos, q_segment, kv_segment, q_span, kv_span, q_flags, kv_flags, valid

    A query that sees no key gives 0. Bits do not depend on batch, chunking or num_threads (0: all cores).
    ValueError for what does not fit; other types than f32 are refused, not converted.
    """
    flat_q, num_sequences = flatten(q, "q")
    flat_k, _ = flatten(k, "k")
    flat_v, _ = flatten(v, "v")
    for name, array in (("q", flat_q), ("k", flat_k), ("v", flat_v)):
        if array.dtype != np.float32:
            raise ValueError(f"{name} is {array.dtype}, expected float32")
    q_len, kv_len = flat_q.shape[0] // num_sequences, flat_k.shape[0] // num_sequences
    q_tokens, kv_tokens = make_tokens(q_len, kv_len, num_sequences, **tokens)
    if bias is not None:
        bias = np.broadcast_to(np.asarray(bias, np.float32), (spec.num_q_heads, flat_q.shape[0], kv_len))
    out, lse = attention_forward(spec, flat_q, flat_k, flat_v, q_tokens, kv_tokens, num_sequences, bias, num_threads)
    shape = np.shape(q)[:-1]
    out = out.reshape(*shape, spec.v_head_dim)
    return (out, lse.reshape(shape)) if return_lse else out
