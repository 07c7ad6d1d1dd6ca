"""B. Which cache slot, planted from the definitions of the catalogue."""
import numpy as np

from .attention import Attention
from .meaning import size_of
from .registry import Planted, plants


@plants("cache.ring_wrap", "written before it is read", masks=("window",), chunks=True, rope=True)
class RingWrittenFirst(Planted, Attention):
    """As many slots as the window: a call of several tokens overwrites slots that its first rows still need."""

    def store(self, call, k, v):
        super().store(call, k, v)
        slots = size_of(self.m.mask, "window")
        self.keys, self.values, self.held = self.keys[-slots:], self.values[-slots:], self.held[-slots:]


@plants("cache.ring_wrap", "masked by slot", masks=("window",), chunks=True, first=0)
class RingMaskedBySlot(RingWrittenFirst):
    """The ring is the window, and the causal mask takes slots for positions: after the wrap the future is seen."""

    def visible(self, call):
        slot = self.held % size_of(self.m.mask, "window")
        return (slot[None, :] <= np.arange(call.begin, call.end)[:, None])[None]


@plants("cache.ring_wrap", "keys rotated by slot", masks=("window",), rope=True, chunks=True, first=0)
class RingKeysRotated(Planted, Attention):
    def rotary_positions(self, call):
        queries, keys = super().rotary_positions(call)
        return queries, keys % size_of(self.m.mask, "window")


@plants("cache.ring_wrap", "all rotated by slot", masks=("window",), rope=True, chunks=True, first=0)
class RingAllRotated(Planted, Attention):
    def rotary_positions(self, call):
        queries, keys = super().rotary_positions(call)
        slots = size_of(self.m.mask, "window")
        return queries % slots, keys % slots


@plants("cache.ring_wrap", "turned early", masks=("window",), chunks=True, alibi=False, bias=False,
        shows=("out", "lse"))
class RingTurnedEarly(Planted, Attention):
    """A ring as large as the window, zeros to begin with, that turns while some of its slots are still zeros."""

    @classmethod
    def prepare(cls, rng, m):
        size = size_of(m.mask, "window")
        return m, {"empty": int(rng.integers(1, min(3, size - 1) + 1))}

    def store(self, call, k, v):
        super().store(call, k, v)
        new = [t for t in range(call.begin, call.end) if self.m.kv.valid[t]]
        if call.index == 0:
            self.ring, self.pushes = new, False
            return
        slots = size_of(self.m.mask, "window")
        for token in new:
            if not self.pushes and len(self.ring) >= slots - self.parameters["empty"]:
                self.ring, self.pushes = (self.ring + [None] * slots)[:max(slots, len(self.ring))], True
            self.ring = self.ring + [token]
            if self.pushes:
                self.ring = self.ring[-slots:]

    def visible(self, call):
        return super().visible(call) & (np.isin(self.held, [t for t in self.ring if t is not None]) |
                                        (call.index == 0))[None, None, :]

    def beside(self, top):
        return super().beside(top) + self.ring.count(None) * np.exp(-top)


@plants("cache.valid_length", "newest unread", masks=("causal",), chunks=True)
class NewestUnread(Planted, Attention):
    """The valid length is one short: the last written slot is not read."""

    def visible(self, call):
        see = super().visible(call).copy()
        see[..., -1] = False
        return see


@plants("cache.valid_length", "length before the write", masks=("causal", "window"), chunks=True, prefix=True)
class LengthBeforeWrite(Planted, Attention):
    def visible(self, call):
        return super().visible(call) & (self.held < call.begin)[None, None, :]


@plants("cache.valid_length", "empty slots read", masks=("causal", "window"), chunks=True, alibi=False, bias=False,
        shows=("out", "lse"))
class EmptySlotsRead(Planted, Attention):
    """Slots of zeros behind the written ones take part: score 0, value 0."""

    @classmethod
    def prepare(cls, rng, m):
        return m, {"slots": int(rng.integers(1, 9))}

    def beside(self, top):
        return super().beside(top) + self.parameters["slots"] * np.exp(-top)


class Positions(Planted, Attention):
    """Rotation counts otherwise than the mask."""

    @staticmethod
    def counted(call, positions, by):
        return positions + by if call.index else positions


@plants("cache.position_offset", "restart", rope=True, chunks=True, masks=("causal", "window"))
class Restart(Positions):
    """Each turn counts from 0 again."""

    def positions(self, call):
        return np.arange(call.end - call.begin)


@plants("cache.position_offset", "prompt counted twice", rope=True, chunks=True, masks=("causal", "window"))
class CountedTwice(Positions):
    def positions(self, call):
        first = self.m.prefix or (*self.m.begins, self.m.num_keys)[1]
        return self.counted(call, super().positions(call), first)


@plants("cache.position_offset", "some tokens behind", rope=True, chunks=True, masks=("causal", "window"))
class Behind(Positions):
    @classmethod
    def prepare(cls, rng, m):
        return m, {"by": int(rng.choice([-3, -2, -1, 2, 4]))}

    def positions(self, call):
        return self.counted(call, super().positions(call), self.parameters["by"])


@plants("cache.position_offset", "queries one step late", rope=True, chunks=True, masks=("causal", "window"))
class QueriesLate(Planted, Attention):
    """The cache moves the counter between the rotation of keys and that of queries."""

    def rotary_positions(self, call):
        queries, keys = super().rotary_positions(call)
        return queries + 1 if call.index else queries, keys


@plants("cache.shift_rerotation", "rotated twice", rope=True, masks=("causal", "window"), first=0)
class RotatedTwice(Planted, Attention):
    """A key that is rotated already is rotated by its position once more."""

    def store(self, call, k, v):
        super().store(call, self.rotate(k, self.positions(call), call), v)


class Shifted(Planted, Attention):
    """Some first tokens stay, tokens behind them were dropped, the rest of the cache moved up to new positions."""

    @classmethod
    def prepare(cls, rng, m):
        m = m.but(prefix=int(rng.integers(6, 11)))
        bias = None if m.bias is None else m.bias[:, :m.num_queries]
        return m.but(bias=bias, begins=(0,)), {"kept": int(rng.integers(1, 4)), "dropped": int(rng.integers(2, 7))}

    def moved(self, call):
        """Which new keys of this call have moved."""
        tokens = np.arange(call.begin, call.end)
        return (tokens >= self.parameters["kept"]) & (tokens < self.m.prefix)


@plants("cache.shift_rerotation", "not rotated again", rope=True, masks=("causal",), prefix=True)
class NotRerotated(Shifted):
    """The tokens that stayed are seen: without them it is a counter that is off, in numbers and in name."""

    def rotary_positions(self, call):
        queries, keys = super().rotary_positions(call)
        return queries, keys + np.where(self.moved(call), self.parameters["dropped"], 0)


@plants("cache.shift_rerotation", "over all dimensions", rope=True, partial=True, masks=("causal", "window"),
        prefix=True)
class RerotatedOverAll(Shifted):
    """Keys were rotated right where they stood, and moved by a rotation over the whole head."""

    def store(self, call, k, v):
        moved = self.moved(call)
        if moved.any():
            right, by = self.m, -self.parameters["dropped"]
            old = self.rotate(call.k, self.positions(call) - by, call)
            self.m = right.but(rope={**right.rope, "dim": right.head_dim})
            again = self.rotate(old, np.full(len(k), by), call)
            self.m = right
            k = np.where(moved[:, None, None], again, k)
        super().store(call, k, v)


class Times(Planted, Attention):
    @classmethod
    def prepare(cls, rng, m):
        return m, {"times": float(rng.choice([0.125, 0.01, 0.5, 3.0, 2.0, 0.0317]))}

    def of_cached(self, x):
        cached = self.held < self.held.max() + 1 - self.newest
        return np.where(cached[:, None, None], x * self.real(self.parameters["times"]), x)

    def store(self, call, k, v):
        self.newest = len(k)
        super().store(call, k, v)


@plants("cache.quant_scale", "values", masks=("causal", "window", "segment"))
class ValuesScaled(Times):
    def read(self, call):
        return self.keys, self.values * self.real(self.parameters["times"])


@plants("cache.quant_scale", "cached keys", masks=("causal", "window"), chunks=True, prefix=True)
class CachedKeysScaled(Times):
    def read(self, call):
        return self.of_cached(self.keys), self.values


@plants("cache.quant_scale", "cached values", masks=("causal", "window"), chunks=True, prefix=True)
class CachedValuesScaled(Times):
    def read(self, call):
        return self.keys, self.of_cached(self.values)


@plants("cache.quant_scale", "keys for values", masks=("causal", "window"), same_dims=True)
class KeysForValues(Planted, Attention):
    def read(self, call):
        return self.keys, self.keys
