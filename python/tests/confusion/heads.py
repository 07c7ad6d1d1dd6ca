"""D. Heads and layout, and E. scores and softmax, planted from the definitions of the catalogue."""
import numpy as np

from .attention import Attention
from .registry import Planted, plants
from .rounding import to_bf16, to_f16

PLAIN = ("causal", "window", "segment", "chunk")


@plants("head.gqa_mapping", "tiled", masks=PLAIN)
class Tiled(Planted, Attention):
    def head_map(self):
        return np.arange(self.m.num_q_heads) % self.m.num_kv_heads


@plants("head.gqa_mapping", "divisor", masks=PLAIN, heads=((6, 3), (12, 4), (20, 5)))
class WrongDivisor(Planted, Attention):
    """Divided by the number of key heads: the last of them are never read."""

    def head_map(self):
        return np.arange(self.m.num_q_heads) // self.m.num_kv_heads


class Fused(Planted, Attention):
    """q, k and v come out of one projection, a row of features a token."""

    def project(self, x):
        m = self.m
        q, k, v = x["q"], x["k"], x["v"]
        sizes = (m.num_q_heads, m.num_kv_heads, m.num_kv_heads)
        return {**x, **self.split(m, len(q), q, k, v, sizes)}


@plants("head.fused_qkv_layout", "groups as blocks", masks=PLAIN, same_dims=True, prefix=False)
class GroupsAsBlocks(Fused):
    """The file holds each key head's queries, its k and its v; they are split as all q, all k, all v."""

    def split(self, m, n, q, k, v, sizes):
        g = m.num_kv_heads
        row = np.concatenate([q.reshape(n, g, m.group, -1), k[:, :, None], v[:, :, None]], 2).reshape(n, -1, m.head_dim)
        return dict(zip("qkv", np.split(row, np.cumsum(sizes)[:2], axis=1)))


@plants("head.fused_qkv_layout", "blocks as groups", masks=PLAIN, same_dims=True, prefix=False)
class BlocksAsGroups(Fused):
    """The reverse."""

    def split(self, m, n, q, k, v, sizes):
        row = np.concatenate([q, k, v], 1).reshape(n, m.num_kv_heads, m.group + 2, m.head_dim)
        return {"q": row[:, :, :m.group].reshape(q.shape), "k": row[:, :, -2], "v": row[:, :, -1]}


@plants("head.merge_transpose", "missing", masks=PLAIN)
class NoTranspose(Planted, Attention):
    def merge(self, out):
        n, h, d = out.shape
        return np.ascontiguousarray(out.transpose(1, 0, 2)).reshape(n, h, d)


@plants("head.merge_transpose", "doubled", masks=PLAIN)
class TransposedTwice(Planted, Attention):
    def merge(self, out):
        n, h, d = out.shape
        return out.reshape(h, n, d).transpose(1, 0, 2)


@plants("head.dim_explicit", masks=PLAIN, rope=True, scale=False)
class DerivedHeadDim(Planted, Attention):
    """hidden / heads stands for the head's width in the scale and in the frequencies."""

    @classmethod
    def prepare(cls, rng, m):
        return m, {"width": int(rng.choice([w for w in (6, 10, 14, 18, 28, 32) if w != m.head_dim]))}

    def width(self):
        return self.parameters["width"]

    def scale(self):
        return self.parameters["width"] ** -0.5


class OtherScale(Planted, Attention):
    pass


@plants("score.scale", "twice", masks=PLAIN, rope=True)
class ScaleTwice(OtherScale):
    def scale(self):
        return super().scale() ** 2


@plants("score.scale", "ignored", masks=PLAIN)
class ScaleIgnored(OtherScale):
    def scale(self):
        return 1.0


@plants("score.scale", "another width", masks=PLAIN)
class ScaleOfOtherWidth(OtherScale):
    @classmethod
    def prepare(cls, rng, m):
        return m, {"width": float(rng.choice([w for w in (5, 10, 14, 40, 56, 192) if w != m.head_dim]))}

    def scale(self):
        return self.parameters["width"] ** -0.5


@plants("score.scale", "inverted", masks=PLAIN, scale=False)
class ScaleInverted(OtherScale):
    def scale(self):
        return 1 / super().scale()


@plants("score.scale", "on the mask", masks=PLAIN, bias=True)
class ScaleOnMask(OtherScale):
    def added(self, call):
        return super().added(call) * self.scale()


@plants("score.softcap", "missing", masks=PLAIN, softcap=True, loud=2)
class NoCap(Planted, Attention):
    def cap(self, s):
        return s


@plants("score.softcap", "s tanh s/c", masks=PLAIN, softcap=True, loud=2)
class EvenCap(Planted, Attention):
    def cap(self, s):
        return s * np.tanh(s / self.m.softcap)


@plants("score.softcap", "s tanh s", masks=PLAIN, softcap=True)
class CapOfUndivided(Planted, Attention):
    """s tanh(s): the cap is nowhere. (c tanh(s) would be a wrong scale, by c, and nothing else.)"""

    def cap(self, s):
        return s * np.tanh(s)


@plants("score.sink", "missing", masks=PLAIN, sinks=True)
class NoSink(Planted, Attention):
    def softmax(self, call, s):
        right = self.m
        self.m = right.but(sinks=None)
        try:
            return super().softmax(call, s)
        finally:
            self.m = right


@plants("score.sink", "counted twice", masks=PLAIN, sinks=True)
class SinkTwice(Planted, Attention):
    def beside(self, top):
        return 2 * super().beside(top)


@plants("score.sink", "scaled", masks=PLAIN, sinks=True)
class SinkScaled(Planted, Attention):
    """The softmax scale multiplies the sink."""

    def sinks(self):
        return super().sinks() * self.real(self.scale())


@plants("score.softmax_precision", "bf16", masks=PLAIN, one_type="f32", loud=2)
class SoftmaxInBf16(Planted, Attention):
    """Scores, exponentials, their sum and the weights are bf16."""
    half = staticmethod(to_bf16)

    def softmax(self, call, s):
        s = self.half(s).astype(self.real)
        top = np.maximum(s.max(-1, keepdims=True), -1e30)
        e = self.half(np.exp(self.half(s - top))).astype(self.real)
        total = self.half(e.sum(-1, keepdims=True) + self.beside(top)).astype(self.real)
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.half(e / total).astype(self.real), (np.log(total) + top)[..., 0]


@plants("score.softmax_precision", "f16", masks=PLAIN, one_type="f32", loud=2)
class SoftmaxInF16(SoftmaxInBf16):
    half = staticmethod(to_f16)


@plants("score.softmax_precision", "scores in bf16", masks=PLAIN, one_type="f32", loud=2)
class ScoresInBf16(Planted, Attention):
    """Only the product of q and k is rounded."""

    def scores(self, q, k):
        return to_bf16(super().scores(q, k)).astype(self.real)


@plants("score.lse_base", "returned", masks=PLAIN, shows=("out", "lse"))
class LseOfBase2(Planted, Attention):
    def softmax(self, call, s):
        p, lse = super().softmax(call, s)
        return p, lse / self.real(np.log(2))


@plants("score.lse_base", "merged", masks=("causal",), chunks=True, prefix=True, sinks=False, shows=("out",))
class MergedInBase2(Planted, Attention):
    """Cached and new keys are two partial results, whose log-sum-exps to base 2 are merged as natural ones."""

    def softmax(self, call, s):
        old = self.held < call.begin
        if not old.any():
            return super().softmax(call, s)
        parts = [super(MergedInBase2, self).softmax(call, np.where(part, s, -np.inf)) for part in (old, ~old)]
        lse = np.stack([part[1] for part in parts]) / self.real(np.log(2))
        with np.errstate(invalid="ignore"):
            share = np.exp(lse - lse.max(0))
        share = share / share.sum(0)
        p = sum(w[..., None] * np.nan_to_num(part[0]) for w, part in zip(share, parts))
        return p, lse.max(0)
