"""Beside single faults: wrong declarations, two faults at once, faults of no catalogue, and controls."""
import dataclasses

import numpy as np

from . import cache, gradients, heads, position, visibility  # noqa: F401
from .attention import Attention
from .draw import draw
from .in_type import InType
from .meaning import exchange
from .registry import Planted

PLAIN = ("causal", "window", "segment", "chunk")


# Wrong declarations: the implementation is right, and means something else than was said. Each gives what was declared,
# what is done, and the name of the fault that turns the one into the other.
def other_window(rng):
    m = draw(rng, masks=("window",))
    by = int(rng.choice([-1, 1]))
    said = exchange(m.mask, "window", lambda leaf: ("window", leaf[1] + by))
    return m.but(mask=said), m, "mask.window_off_by_one"


def window_not_done(rng):
    m = draw(rng, masks=("causal",))
    said = ("and", m.mask, ("window", int(rng.integers(3, m.num_keys // 2))))
    return m.but(mask=said), m, "mask.window_scope"


def window_not_said(rng):
    m = draw(rng, masks=("window",))
    return m.but(mask=("causal",)), m, "mask.window_scope"


def other_base(rng):
    m = draw(rng, masks=PLAIN, rope=True)
    said = float(rng.choice([t for t in (10000.0, 500000.0, 1e6, 2000.0) if t != m.rope["theta"]]))
    return m.but(rope={**m.rope, "theta": said}), m, "rope.base"


def other_pairing(rng):
    m = draw(rng, masks=PLAIN, rope=True)
    said = "interleaved" if m.rope["pairing"] == "half_split" else "half_split"
    return m.but(rope={**m.rope, "pairing": said}), m, "rope.pairing"


def other_scale(rng):
    m = draw(rng, masks=PLAIN, scale=True)
    return m.but(scale=m.scale * float(rng.choice([0.5, 0.8, 1.25, 3.0]))), m, "score.scale"


def cap_not_done(rng):
    m = draw(rng, masks=PLAIN, softcap=False, loud=2)
    return m.but(softcap=float(rng.choice([3.0, 5.0, 10.0]))), m, "score.softcap"


def sink_not_done(rng):
    m = draw(rng, masks=PLAIN, sinks=False)
    return m.but(sinks=np.round(rng.normal(1.0, 1.0, m.num_q_heads), 3)), m, "score.sink"


def documents_not_known(rng):
    m = draw(rng, masks=("segment",))
    return m, m.but(mask=("causal",)), "pack.cross_document"


def scaling_not_done(rng):
    m = draw(rng, masks=PLAIN, rope=True)
    return position.with_scaling(rng, m, ["linear", "llama3"]), m, "rope.scaling_missing"


DECLARATIONS = (other_window, window_not_done, window_not_said, other_base, other_pairing, other_scale, cap_not_done,
                sink_not_done, documents_not_known, scaling_not_done)


# Two faults at once, from groups whose effects do not undo each other.
class Both:
    """Two planted classes as one: each overrides a step of its own."""

    def __init__(self, first, second, **want):
        self.first, self.second, self.want = first, second, want
        self.slugs = {first.slug, second.slug}
        self.make = type(first.__name__ + second.__name__, (first, second), {})

    def prepare(self, rng, m):
        m, a = self.first.prepare(rng, m)
        m, b = self.second.prepare(rng, m)
        return m, {**a, **b}


PAIRS = (
    Both(visibility.OneMore, position.PairingMixed, masks=("window",), rope=True),
    Both(visibility.OneMore, heads.ScaleTwice, masks=("window",)),
    Both(heads.Tiled, position.OtherBase, masks=PLAIN, rope=True),
    Both(heads.Tiled, visibility.WindowNotApplied, masks=("window",)),
    Both(position.PairingMixed, heads.NoSink, masks=PLAIN, rope=True, sinks=True),
    Both(visibility.CausalDropped, heads.NoCap, masks=("causal",), softcap=True, loud=2),
    Both(visibility.DocumentsMeet, heads.ScaleIgnored, masks=("segment",)),
    Both(cache.Restart, heads.Tiled, masks=("causal",), rope=True, chunks=True),
    Both(visibility.TopLeft, heads.NoSink, masks=("causal",), prefix=True, sinks=True),
)


# Faults of no catalogue: whatever is named, it may not be certain.
class PagesReversed(Planted, Attention):
    """The keys of each page lie in reverse, and are read without their values."""
    want = {"masks": PLAIN, "rope": True}

    def read(self, call):
        page, n = 4, len(self.keys)
        order = np.concatenate([np.arange(b, min(b + page, n))[::-1] for b in range(0, n, page)])
        return self.keys[order], self.values


class QueriesSorted(Planted, Attention):
    """The queries of a call are sorted by their first component and never put back."""
    want = {"masks": PLAIN, "chunks": False}

    def attend(self, call, q, keys, values):
        return super().attend(call, q[np.argsort(q[:, 0, 0], kind="stable")], keys, values)


class ValueHeadsTurned(Planted, Attention):
    """Key head h reads the values of head h + 1."""
    want = {"masks": PLAIN}

    def read(self, call):
        return self.keys, np.roll(self.values, -1, axis=1)


class EveryThirdKeySkipped(Planted, Attention):
    want = {"masks": ("causal", "segment")}

    def visible(self, call):
        return super().visible(call) & (self.held % 3 != 2)[None, None, :] | np.eye(
            self.m.num_keys, dtype=bool)[call.begin:call.end, :len(self.held)][None]


class WeightsSquared(Planted, Attention):
    """Weights are squared and normalised again for the odd heads only."""
    want = {"masks": PLAIN, "sinks": False}

    def softmax(self, call, s):
        p, lse = super().softmax(call, s)
        q = p ** 2 / (p ** 2).sum(-1, keepdims=True)
        return np.where((np.arange(len(p)) % 2 == 1)[:, None, None], q, p), lse


class ValuesSmoothed(Planted, Attention):
    """Each value is mixed with the one before it."""
    want = {"masks": PLAIN}

    def read(self, call):
        before = np.concatenate([self.values[:1], self.values[:-1]])
        return self.keys, (self.values + before) / 2


class SecondHalfNegated(Planted, Attention):
    """The second half of each output has the wrong sign."""
    want = {"masks": PLAIN}

    def merge(self, out):
        half = out.shape[2] // 2
        return np.concatenate([out[..., :half], -out[..., half:]], -1)


class LaggingKeys(Planted, Attention):
    """Each query meets the keys one token late, but the right values."""
    want = {"masks": ("causal", "window"), "rope": False}

    def read(self, call):
        return np.concatenate([self.keys[:1], self.keys[:-1]]), self.values


UNCATALOGUED = (PagesReversed, QueriesSorted, ValueHeadsTurned, EveryThirdKeySkipped, WeightsSquared, ValuesSmoothed,
                SecondHalfNegated, LaggingKeys)


# Controls: what looks like a fault and is none (section 3 of the catalogue), and right runs in other orders.
class Right(Planted, Attention):
    want = {}


class EverythingShifted(Planted, Attention):
    """All rotary positions stand off by one constant."""
    want = {"rope": True, "first": 0}

    def rotary_positions(self, call):
        queries, keys = super().rotary_positions(call)
        return queries + 37, keys + 37


class ResetInIsolation(Planted, Attention):
    """Documents that cannot read each other are rotated from 0 each."""
    want = {"masks": ("segment",), "rope": True}

    def positions(self, call):
        return (self.m.kv.pos - self.m.kv.start)[call.begin:call.end]


class SlopeTimesKey(Planted, Attention):
    """ALiBi as slope * j: a constant a row is missing, which cancels. (Its lse is another.)"""
    want = {"alibi": True, "rope": False, "shows": ("out",), "sinks": False, "first": 0}

    def alibi(self, call):
        return np.asarray(self.slopes())[:, None, None] * self.m.kv.pos[self.held][None, None, :]


class SinkAfterwards(Planted, Attention):
    """The sink as a factor of the output: sigmoid(lse - sink)."""
    want = {"sinks": True}

    def softmax(self, call, s):
        right = self.m
        self.m = right.but(sinks=None)
        p, lse = super().softmax(call, s)
        self.m = right
        sink = self.sinks()[:, None]
        factor = 1 / (1 + np.exp(sink - lse))
        return p * factor[..., None], np.logaddexp(lse, sink)


class RowTermOfWeights(Planted, Attention):
    """sum(dP * P) in place of sum(dO * O)."""
    want = {"gradients": True, "masks": PLAIN, "sinks": False}

    def row_term(self, d_out, out):
        x, m = self.inputs, self.m
        p = np.exp(self.last_s - self.last_lse[..., None])
        d_p = np.einsum("ihd,jhd->hij", d_out, x["v"][:, self.head_map()])
        return (d_p * p).sum(-1, keepdims=True)

    def softmax(self, call, s):
        p, lse = super().softmax(call, s)
        self.last_s, self.last_lse = s, lse
        return p, lse


class CapFolded(Planted, Attention):
    """tanh of the score times a constant that was divided beforehand."""
    want = {"softcap": True}

    def scores(self, q, k):
        return np.einsum("ihd,jhd->hij", q, k)

    def cap(self, s):
        folded = self.real(self.scale() / self.m.softcap)
        return self.real(self.m.softcap) * np.tanh(s * folded)


class TiledWithoutGroups(heads.Tiled):
    """Tiled key heads where every query head has its own, or where there is one."""
    want = {"heads": ((4, 1), (5, 5))}


class TrailingPads(Planted, Attention):
    """Pads behind the text that no real row can see, with an all-ones mask. (Their own rows mean nothing.)"""
    want = {"masks": ("causal",), "prefix": False, "chunks": False}

    @classmethod
    def prepare(cls, rng, m):
        n = m.num_keys
        return m.but(kv=dataclasses.replace(m.kv, valid=np.arange(n) < n - 3)), {}


class OneVisibleKey(heads.ScaleIgnored):
    """Where a row sees one key, any scale is right."""
    want = {"shows": ("out",), "sinks": False, "softcap": False, "bias": False}

    @classmethod
    def prepare(cls, rng, m):
        return m.but(mask=("and", ("causal",), ("window", 1))), {}


class Reversed(Planted, Attention):
    """Keys are summed from the last to the first."""
    want = {}

    def softmax(self, call, s):
        p, lse = super().softmax(call, s[..., ::-1])
        return p[..., ::-1], lse


class Online(Planted, Attention):
    """Weights from blocks of keys with a running maximum, as tiled kernels have them."""
    want = {}

    def softmax(self, call, s):
        top = np.full(s.shape[:2], -np.inf, self.real)
        total = np.zeros(s.shape[:2], self.real)
        parts = []
        with np.errstate(invalid="ignore"):
            for begin in range(0, s.shape[2], 5):
                block = s[..., begin:begin + 5]
                new = np.maximum(top, block.max(-1))
                safe = np.where(np.isfinite(new), new, 0).astype(self.real)
                total = total * np.exp(np.where(np.isfinite(top), top - safe, -np.inf))
                e = np.exp(block - safe[..., None])
                total = total + e.sum(-1)
                parts.append((safe, e))
                top = new
            safe = np.where(np.isfinite(top), top, 0).astype(self.real)
            total = total + np.squeeze(self.beside(safe[..., None]), -1) if self.m.sinks is not None else total
            p = np.concatenate([e * np.exp(at - safe)[..., None] for at, e in parts], -1) / total[..., None]
            return p, np.log(total) + safe


class InSplits(Planted, Attention):
    """Two parts of the keys, merged by their natural log-sum-exps."""
    want = {"sinks": False}

    def softmax(self, call, s):
        old = np.arange(s.shape[2]) < s.shape[2] // 2
        with np.errstate(invalid="ignore"):
            parts = [super(InSplits, self).softmax(call, np.where(part, s, -np.inf)) for part in (old, ~old)]
            lse = np.logaddexp(parts[0][1], parts[1][1])
            p = sum(np.where(np.isfinite(part[1])[..., None], np.nan_to_num(part[0]), 0) *
                    np.exp(np.where(np.isfinite(part[1]), part[1] - lse, -np.inf))[..., None] for part in parts)
        return p, lse


class ScaledQueries(Planted, Attention):
    """The scale is multiplied into the queries beforehand."""
    want = {}

    def scores(self, q, k):
        return np.einsum("ihd,jhd->hij", q * self.real(self.scale()), k)


class DropsNothing(cache.RingWrittenFirst):
    """A ring of the window's size with one token a call: every key that is gone is out of the window."""
    want = {"masks": ("window",), "prefix": False}

    @classmethod
    def prepare(cls, rng, m):
        return m.but(begins=tuple(range(m.num_queries))), {}


class SinkTooSmall(heads.NoSink):
    """A sink that is left out where it is far below every score."""
    want = {"sinks": True}

    @classmethod
    def prepare(cls, rng, m):
        return m.but(sinks=np.full(m.num_q_heads, -60.0)), {}


CONTROLS = (Right, InType, EverythingShifted, ResetInIsolation, SlopeTimesKey, SinkAfterwards, RowTermOfWeights,
            CapFolded, TiledWithoutGroups, TrailingPads, OneVisibleKey, Reversed, Online, InSplits, ScaledQueries,
            DropsNothing, SinkTooSmall)


