"""Attention for PyTorch on CPUs: any composed mask, forward and backward, keys never repeated for their query heads.

Tensors are [batch, heads, tokens, dim], as torch's own attention functions take them. Needs torch 2.
"""
import sys
from dataclasses import dataclass, field

import numpy as np
import torch

from ._attention import attention as engine_attention
from ._attention import attention_backward, oracle_backward, score_arrays
from ._core import oracle_forward
from ._recognise import Found, equals, recognise
from ._spec import attention_spec
from ._tokens import make_tokens

__all__ = ["Mask", "attention", "from_mask_mod"]


@dataclass(frozen=True)
class Mask:
    """A mask with the tokens it is about: what from_mask_mod returns and `attention` takes.

    mask         its text
    tokens       arrays of positions, documents, flags by the names that `attention` takes
    dense        a boolean matrix [batch or 1, heads or 1, q_len, kv_len] where no rule fits, else None
    num_visible  visible pairs of all sequences and heads that were evaluated; num_pairs: all of them
    q_len, kv_len
                 the lengths it was evaluated for, and is for; 0: any
    """
    mask: str
    tokens: dict = field(default_factory=dict)
    dense: object = None
    num_visible: int = 0
    num_pairs: int = 0
    q_len: int = 0
    kv_len: int = 0

    @property
    def bytes(self):
        """Memory of the matrix and of the tokens' arrays."""
        return sum(x.nbytes for x in self.tokens.values()) + (0 if self.dense is None else self.dense.nbytes)

    def __repr__(self):
        share = 100 * self.num_visible / max(1, self.num_pairs)
        return f"Mask({self.mask!r}, {share:.1f} % of {self.num_pairs} pairs visible, {self.bytes} bytes)"


def attention(q, k, v, mask="causal", *, softmax_scale=None, logit_softcap=0.0, alibi_slopes=None, sink_logits=None,
              bias=None, dense=None, rope="none", rope_length=0, return_lse=False, num_threads=0, **tokens):
    """Attention with autograd, forward and backward on the engine.

    q, k, v        [batch, heads, tokens, dim] or [heads, tokens, dim] on the CPU; k and v may have fewer heads than q
                   (query head h reads key head h * num_kv_heads // num_q_heads) and v another dim. float32, float16
                   and bfloat16 are computed in f32; float64 by the oracle, on one core
    mask           text such as "causal & window(256)", or a Mask from from_mask_mod
    softmax_scale  multiplies q . k; None: 1 / sqrt(dim)
    logit_softcap  c: scores become c * tanh(score / c); 0: off
    alibi_slopes, sink_logits
                   [num_q_heads], tensors with gradients or numbers; a sink is one more logit in the denominator
    bias           added to scores, broadcasts to [batch, num_q_heads, q_len, kv_len], with gradient
    dense          bool, True is visible, broadcasts to the same
    rope           "none", or a RopeSpec by which q and k are rotated; their gradients are those before rotation
    tokens         positions, documents, flags, valid as in sightline.attention; queries without positions are the
                   last tokens of the keys (torch's is_causal counts from the first: say q_pos=range(q_len))

    Returns the output [batch, heads, tokens, v_dim], with return_lse also the log-sum-exps [batch, heads, tokens].
    A query that sees no key gives 0, and no gradient. ValueError for what does not fit.
    Cost: by visible pairs, the backward 2.5 times the forward; a gradient of a bias that is broadcast over heads or
    tokens is summed on one core.
    """
    if isinstance(mask, Mask):
        if dense is not None and mask.dense is not None:
            raise ValueError("dense is given twice: the mask has a matrix of its own")
        lengths = (q.shape[-2], k.shape[-2])
        if mask.q_len and lengths != (mask.q_len, mask.kv_len):
            raise ValueError(f"the mask was evaluated for {mask.q_len} queries and {mask.kv_len} keys, got {lengths[0]} "
                             f"and {lengths[1]}")
        dense = mask.dense if dense is None else dense
        tokens = {**mask.tokens, **tokens}
        mask = mask.mask
    if q.ndim not in (3, 4) or k.ndim != q.ndim or v.ndim != q.ndim:
        raise ValueError(f"q, k, v have shapes {[list(x.shape) for x in (q, k, v)]}, expected [batch, heads, tokens, "
                         "dim] or [heads, tokens, dim]")
    spec = attention_spec(num_q_heads=q.shape[-3], num_kv_heads=k.shape[-3], qk_head_dim=q.shape[-1],
                          v_head_dim=v.shape[-1], mask=mask, rope=rope, softmax_scale=softmax_scale,
                          logit_softcap=logit_softcap, alibi_slopes=_numbers(alibi_slopes),
                          sink_logits=_numbers(sink_logits))
    call = _Call(spec, dense, rope_length, num_threads, tokens)
    vectors = [x if isinstance(x, torch.Tensor) else None for x in (alibi_slopes, sink_logits)]
    out, lse = _Attention.apply(q, k, v, bias, *vectors, call)
    return (out, lse) if return_lse else out


def from_mask_mod(mask_mod, q_len, kv_len, *, batch=1, num_heads=1):
    """A Mask that equals a FlexAttention `mask_mod(b, h, q_idx, kv_idx)` pair by pair.

    The function is evaluated on every pair, as torch's create_mask does, and put back into rules: causal at any
    offset, windows, kept first tokens, chunks, documents, prefixes, bidirectional spans, steps, global tokens, padding,
    their combinations, and any matrix with at most 32 kinds of rows (block structure). These take memory for tokens
    only. A rule is taken only when its definition gives the evaluated matrix on every pair. Where none does, or where
    heads differ, the matrix itself is kept (`dense`), and its cost is printed to standard error; empty tiles are
    still skipped.

    batch, num_heads: how many of each the function tells apart; 1: it does not look at them.
    Cost: q_len * kv_len bytes for each of batch and num_heads while it is evaluated; 3 to 30 s for 8192 by 8192.
    """
    matrices = np.stack([[_evaluate(mask_mod, b, h, q_len, kv_len) for h in range(num_heads)] for b in range(batch)])
    count = {"num_visible": int(matrices.sum()), "num_pairs": matrices.size, "q_len": q_len, "kv_len": kv_len}
    if (matrices == matrices[:, :1]).all():
        found = _joined([recognise(m[0]) for m in matrices], matrices[:, 0])
        if found is not None:
            return Mask(found.mask, found.tokens, None, **count)
        matrices = matrices[:, :1]
    # The rule `dense` knows one matrix a sequence; one for each head goes beside a mask that hides nothing.
    mask = Mask("dense" if matrices.shape[1] == 1 else "all", {}, matrices, **count)
    print(f"sightline: no rule fits this mask_mod; its matrix takes {mask.bytes} bytes ({mask.num_visible} of "
          f"{mask.num_pairs} pairs visible)", file=sys.stderr)
    return mask


def _numbers(values):
    return values.detach().tolist() if isinstance(values, torch.Tensor) else values


def _evaluate(mask_mod, b, h, q_len, kv_len, block=1024):
    """[q_len, kv_len] of bool, some rows at a time."""
    b, h = torch.tensor(b), torch.tensor(h)
    of_row = torch.vmap(mask_mod, in_dims=(None, None, None, 0))
    of_rows = torch.vmap(of_row, in_dims=(None, None, 0, None))
    keys, parts = torch.arange(kv_len), []
    for begin in range(0, q_len, block):
        rows = torch.arange(begin, min(begin + block, q_len))
        parts.append(of_rows(b, h, rows, keys).to(torch.bool).numpy())
    return np.concatenate(parts)


def _joined(found, matrices):
    """One mask for all sequences of a batch: the first that fits every one, each with its own tokens."""
    if any(f is None for f in found):
        return None
    for text in dict.fromkeys(f.mask for f in found):
        names = [name for f in found if f.mask == text for name in f.tokens]
        each = []
        for f, matrix in zip(found, matrices):
            size = {"q": matrix.shape[0], "k": matrix.shape[1], "v": matrix.shape[1]}
            plain = {name: np.full(size[name[0]], int("valid" in name), np.int64) for name in dict.fromkeys(names)}
            own = Found(text, {**plain, **{n: x for n, x in f.tokens.items() if n in plain}})
            if f.mask != text and not equals(matrix, own, np.arange(len(matrix))):
                break
            each.append(own.tokens)
        else:
            same = all(np.array_equal(e[n], each[0][n]) for e in each for n in e)
            return Found(text, each[0] if same else {n: np.concatenate([e[n] for e in each]) for n in each[0]})
    return None


class _Attention(torch.autograd.Function):
    """The engine, or in float64 the oracle."""

    @staticmethod
    def forward(ctx, q, k, v, bias, alibi_slopes, sink_logits, call):
        ctx.call = call
        ctx.vectors = [None if x is None else x.dtype for x in (alibi_slopes, sink_logits)]
        rows = [x.detach().transpose(-3, -2) for x in (q, k, v)]
        run = call.oracle if q.dtype == torch.float64 else call.engine
        out, lse = run(*rows, None if bias is None else bias.detach())
        out, lse = out.transpose(-3, -2), lse.transpose(-2, -1)
        ctx.save_for_backward(q, k, v, bias, out, lse)
        return out, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_out, d_lse):
        q, k, v, bias, out, lse = ctx.saved_tensors
        rows = [x.detach().transpose(-3, -2) for x in (q, k, v, d_out)]
        call = ctx.call
        arguments = {"d_lse": d_lse.transpose(-2, -1), "bias": None if bias is None else bias.detach(),
                     "dense": call.dense, "rope_length": call.rope_length, **call.tokens}
        if q.dtype == torch.float64:
            grads = oracle_backward(*rows, call.spec, **arguments)
        else:
            grads = attention_backward(*rows, call.spec, out=out.detach().transpose(-3, -2),
                                       lse=lse.detach().transpose(-2, -1), num_threads=call.num_threads, **arguments)
        back = [torch.as_tensor(x).transpose(-3, -2).to(t.dtype) for x, t in zip(grads, (q, k, v))]
        d_bias = None if bias is None else torch.as_tensor(grads.d_bias).to(bias.dtype)
        vectors = [None if dtype is None else torch.from_numpy(x).to(dtype)
                   for x, dtype in zip((grads.d_alibi_slopes, grads.d_sink_logits), ctx.vectors)]
        return (*back, d_bias, *vectors, None)


@dataclass(frozen=True)
class _Call:
    """What a call holds beside its differentiable inputs."""
    spec: object
    dense: object
    rope_length: int
    num_threads: int
    tokens: dict

    def engine(self, q, k, v, bias):
        out, lse = engine_attention(q, k, v, self.spec, bias=bias, dense=self.dense, rope_length=self.rope_length,
                                    return_lse=True, num_threads=self.num_threads, **self.tokens)
        return out, torch.from_numpy(lse)

    def oracle(self, q, k, v, bias):
        """float64, sequence by sequence."""
        rows = [x.numpy().reshape(-1, *x.shape[-3:]) for x in (q, k, v)]
        (batch, q_len), kv_len = rows[0].shape[:2], rows[1].shape[1]
        spec, bias, dense = score_arrays(self.spec, bias, self.dense, batch, q_len, kv_len, np.float64)
        q_tokens, kv_tokens = make_tokens(q_len, kv_len, batch, **self.tokens)
        each = [oracle_forward(spec, *(x[b] for x in rows), q_tokens.slice(b * q_len, q_len),
                               kv_tokens.slice(b * kv_len, kv_len), None if bias is None else bias[b],
                               None if dense is None else dense[b], self.rope_length)[:2] for b in range(batch)]
        out, lse = (torch.from_numpy(np.stack([e[i] for e in each])) for i in range(2))
        return out.reshape(*q.shape[:-1], -1), lse.reshape(q.shape[:-1])
