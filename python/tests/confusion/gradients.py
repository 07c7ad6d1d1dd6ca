"""G. Gradients, planted from the definitions of the catalogue. The forward is right in all of them."""
import dataclasses

import numpy as np

from .attention import Attention
from .meaning import exchange
from .registry import Planted, plants

PLAIN = ("causal", "window", "segment", "chunk")
BACK = {"gradients": True, "masks": PLAIN}


@plants("grad.delta_term", "missing", **BACK)
class NoDelta(Planted, Attention):
    def row_term(self, d_out, out):
        return self.real(0)


@plants("grad.delta_term", "mis-strided", **BACK)
class DeltaMisread(Planted, Attention):
    """Written [tokens, heads], read as [heads, tokens]."""

    def row_term(self, d_out, out):
        n, h = out.shape[:2]
        return (d_out * out).sum(-1).reshape(h, n)[:, :, None]


class Gathered(Planted, Attention):
    def by_group(self, d):
        return d.reshape(len(d), self.m.num_kv_heads, self.m.group, -1)


@plants("grad.gqa_reduction", "last head", **BACK)
class LastHeadWins(Gathered):
    def gather(self, d):
        return self.by_group(d)[:, :, -1]


@plants("grad.gqa_reduction", "first head", **BACK)
class FirstHeadAlone(Gathered):
    def gather(self, d):
        return self.by_group(d)[:, :, 0]


@plants("grad.gqa_reduction", "mean", **BACK)
class MeanOfHeads(Gathered):
    def gather(self, d):
        return self.by_group(d).mean(2)


@plants("grad.gqa_reduction", "wrong head", **BACK)
class TiledHeads(Gathered):
    """Summed into key head h mod the number of key heads."""

    def gather(self, d):
        return d.reshape(len(d), self.m.group, self.m.num_kv_heads, -1).sum(1)


class OtherBackwardMask(Planted, Attention):
    def visible_backward(self, call):
        right = self.m
        self.m = right.but(mask=self.other())
        try:
            return super().visible_backward(call)
        finally:
            self.m = right


@plants("grad.mask_mismatch", "everything", gradients=True, masks=("causal", "window"))
class BackwardSeesAll(OtherBackwardMask):
    """Neither causal nor windowed."""

    def other(self):
        wide = exchange(self.m.mask, "causal", lambda leaf: ("all",))
        return exchange(wide, "window", lambda leaf: ("all",))


@plants("grad.mask_mismatch", "no window", gradients=True, masks=("window",))
class BackwardHasNoWindow(OtherBackwardMask):
    def other(self):
        return exchange(self.m.mask, "window", lambda leaf: ("all",))


@plants("grad.mask_mismatch", "window off by one", gradients=True, masks=("window",))
class BackwardWindowWider(OtherBackwardMask):
    def other(self):
        return exchange(self.m.mask, "window", lambda leaf: ("window", leaf[1] + 1))


@plants("score.softcap", "gradient", softcap=True, loud=2, **BACK)
class NoCapSlope(Planted, Attention):
    def cap_slope(self, raw):
        return self.real(1)


@plants("grad.unwritten", "nan tail", **BACK)
class TailUnwritten(Planted, Attention):
    """The last rows hold NaN, as a poisoned allocator gives."""

    @classmethod
    def prepare(cls, rng, m):
        return m, {"rows": int(rng.integers(1, 5))}

    def written(self, gradients):
        for d in gradients.values():
            d[len(d) - self.parameters["rows"]:] = np.nan
        return gradients


@plants("grad.unwritten", "padding", gradients=True, masks=("causal",))
class PadsUnwritten(Planted, Attention):
    """Rows of pads behind the text keep what the memory held."""

    @classmethod
    def prepare(cls, rng, m):
        n = m.num_keys
        return m.but(kv=dataclasses.replace(m.kv, valid=np.arange(n) < n - int(rng.integers(2, 6)))), {}

    def written(self, gradients):
        pads = ~self.m.kv.valid
        for d in gradients.values():
            d[pads] = 1e4 * np.sin(np.arange(d[pads].size) + 1.0).reshape(d[pads].shape)
        return gradients


class Severed(Planted, Attention):
    zero = ()

    def written(self, gradients):
        return {name: np.zeros_like(d) if name in self.zero else d for name, d in gradients.items()}


@plants("grad.severed", "softmax", **BACK)
class NothingThroughSoftmax(Severed):
    zero = ("d_q", "d_k")


@plants("grad.severed", "queries", **BACK)
class NoQueryGradient(Severed):
    zero = ("d_q",)


@plants("grad.severed", "keys", **BACK)
class NoKeyGradient(Severed):
    zero = ("d_k",)


@plants("grad.severed", "values", **BACK)
class NoValueGradient(Severed):
    zero = ("d_v",)
