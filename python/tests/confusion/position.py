"""C. At which position, planted from the definitions of the catalogue."""
import numpy as np

from .attention import Attention
from .registry import Planted, plants
from .rounding import to_bf16, to_f16

PLAIN = ("causal", "window", "segment", "chunk")


@plants("rope.pairing", rope=True, masks=PLAIN)
class PairingMixed(Planted, Attention):
    def pairing(self):
        return "half_split" if self.m.rope["pairing"] == "interleaved" else "interleaved"


def halves_to_file(x, width):
    """[tokens, heads, dim] whose rows stand as halves of `width`, as neighbours."""
    return x.reshape(len(x), -1, 2, width // 2).swapaxes(2, 3).reshape(x.shape)


def file_to_halves(x, width):
    return x.reshape(len(x), -1, width // 2, 2).swapaxes(2, 3).reshape(x.shape)


class RowsOfOtherHeads(Planted, Attention):
    """Rows of a projection go through a file as neighbours; one of the two ways takes heads for others."""
    parts, on_the_way = ("q", "k"), "read"

    @classmethod
    def prepare(cls, rng, m):
        rows = {"q": m.num_q_heads, "k": m.num_kv_heads}
        least = min(rows[part] for part in cls.parts) * m.head_dim
        widths = [w for w in range(2, least + 1, 2) if least % w == 0 and w != m.head_dim]
        if cls.on_the_way == "written":
            widths.remove(2)  # of q and k alike that is the other pairing
        return m, {"width": int(rng.choice(widths))}

    def project(self, x):
        width, right, x = self.parameters["width"], self.m.head_dim, dict(x)
        written, read = (width, right) if self.on_the_way == "written" else (right, width)
        neighbours = self.m.rope["pairing"] == "interleaved"
        for part in self.parts:
            halves = file_to_halves(x[part], right) if neighbours else x[part]
            halves = file_to_halves(halves_to_file(halves, written), read)
            x[part] = halves_to_file(halves, right) if neighbours else halves
        return x


ROWS = {"rope": True, "partial": False, "masks": PLAIN, "shows": ("out", "lse")}


@plants("rope.pairing", "rows put back for other heads", **ROWS)
class RowsRead(RowsOfOtherHeads):
    pass


@plants("rope.pairing", "rows of k put back for other heads", **ROWS)
class KeyRowsRead(RowsOfOtherHeads):
    parts = ("k",)


@plants("rope.pairing", "rows of q put back for other heads", **ROWS)
class QueryRowsRead(RowsOfOtherHeads):
    parts = ("q",)


@plants("rope.pairing", "rows written for other heads", **ROWS)
class RowsWritten(RowsOfOtherHeads):
    on_the_way = "written"


@plants("rope.pairing", "rows of k written for other heads", **ROWS)
class KeyRowsWritten(RowsOfOtherHeads):
    parts, on_the_way = ("k",), "written"


@plants("rope.partial_dim", "all dimensions", rope=True, partial=True, masks=PLAIN)
class AllDimensions(Planted, Attention):
    """The factor is not read: the whole head turns."""

    def rotate(self, x, pos, call, inverse=False):
        right = self.m
        self.m = right.but(rope={**right.rope, "dim": right.head_dim})
        try:
            return super().rotate(x, pos, call, inverse)
        finally:
            self.m = right


@plants("rope.partial_dim", "exponent", rope=True, partial=True, masks=PLAIN)
class ExponentOfHead(Planted, Attention):
    """Right dimensions at frequencies whose exponent is over the head's width."""

    def width(self):
        return self.m.head_dim


@plants("rope.partial_dim", "partner", rope=True, partial=True, masks=PLAIN)
class PartnerOfHead(Planted, Attention):
    """Half of the head, not of the rotary part, lies between partners."""

    @classmethod
    def prepare(cls, rng, m):
        return m.but(rope={**m.rope, "pairing": "half_split"}), {}

    def pairs(self):
        first = np.arange(self.m.rope["dim"] // 2)
        return first, first + self.m.head_dim // 2


@plants("rope.base", rope=True, masks=PLAIN)
class OtherBase(Planted, Attention):
    @classmethod
    def prepare(cls, rng, m):
        usual = [t for t in (10000.0, 500000.0, 1000.0, 1e6, 33333.0) if t != m.rope["theta"]]
        return m, {"theta": float(rng.choice(usual))}

    def theta(self, call):
        return self.parameters["theta"]


def with_scaling(rng, m, kinds):
    kind = str(rng.choice(kinds))
    scaling = {"kind": kind, "factor": float(rng.choice([2.0, 3.0, 4.0, 32.0]))}
    if kind == "llama3":
        # A context that puts pairs of these few dimensions into all three bands.
        scaling.update(original_context=int(rng.choice([64, 256, 1000])), low_freq_factor=1.0, high_freq_factor=4.0)
    return m.but(rope={**m.rope, "scaling": scaling})


@plants("rope.scaling_missing", "missing", rope=True, masks=PLAIN)
class ScalingMissing(Planted, Attention):
    @classmethod
    def prepare(cls, rng, m):
        return with_scaling(rng, m, ["linear", "llama3"]), {}

    def frequencies(self, call):
        return self.theta(call) ** (-np.arange(0, self.m.rope["dim"], 2) / self.width())


@plants("rope.scaling_missing", "factor fixed", rope=True, masks=PLAIN)
class ScalingFixed(Planted, Attention):
    """Always by 8, whatever the file says."""

    @classmethod
    def prepare(cls, rng, m):
        return with_scaling(rng, m, ["linear", "llama3"]), {}

    def frequencies(self, call):
        right = self.m
        self.m = right.but(rope={**right.rope, "scaling": {**right.rope["scaling"], "factor": 8.0}})
        try:
            return super().frequencies(call)
        finally:
            self.m = right


def with_magnitude(rng, m):
    return m.but(rope={**m.rope, "magnitude": float(rng.choice([1.1386, 1.2079, 1.3466, 1.4852]))})


@plants("rope.yarn_magnitude", "ignored", rope=True, masks=PLAIN)
class MagnitudeIgnored(Planted, Attention):
    @classmethod
    def prepare(cls, rng, m):
        return with_magnitude(rng, m), {}

    def magnitude(self):
        return 1.0


@plants("rope.yarn_magnitude", "squared", rope=True, masks=PLAIN)
class MagnitudeSquared(MagnitudeIgnored):
    def magnitude(self):
        return self.m.rope["magnitude"] ** 2


@plants("rope.yarn_magnitude", "on all logits", rope=True, partial=True, masks=PLAIN)
class MagnitudeOnLogits(MagnitudeIgnored):
    """The part of cos and sin goes into the softmax scale, where it meets the dimensions that do not turn as well."""

    def scale(self):
        return super().scale() * self.m.rope["magnitude"] ** 2


@plants("rope.cached_keys_rescaled", rope=True, partial=False, chunks=True, masks=("causal", "window"), first=0)
class KeysGoStale(Planted, Attention):
    """The base follows the length of the moment; keys in the cache keep the one that they were written with."""

    @classmethod
    def prepare(cls, rng, m):
        scaling = {"kind": "dynamic_ntk", "factor": float(rng.choice([2.0, 4.0])),
                   "original_context": int(rng.integers(4, m.num_keys // 2))}
        return m.but(rope={**m.rope, "scaling": scaling}), {}

    def length(self, call):
        return call.end


HALF = {"bf16": to_bf16, "f16": to_f16}


class LowPrecision(Planted, Attention):
    @classmethod
    def prepare(cls, rng, m):
        return m, {"half": str(rng.choice(["bf16", "f16"]))}

    def halved(self, x):
        return HALF[self.parameters["half"]](x).astype(float)


@plants("rope.low_precision", "frequencies", rope=True, masks=("causal", "window"), first=1900, one_type="f32")
class FrequenciesHalved(LowPrecision):
    def frequencies(self, call):
        return self.halved(super().frequencies(call))


@plants("rope.low_precision", "angles", rope=True, masks=("causal", "window"), first=700)
class AnglesHalved(LowPrecision):
    def turns(self, pos, call):
        angles = self.halved(np.asarray(pos, float)[:, None] * self.frequencies(call)[None, :])
        return self.magnitude() * np.cos(angles), self.magnitude() * np.sin(angles)


@plants("rope.low_precision", "tables", rope=True, masks=("causal", "window"), first=300, one_type="f32")
class TablesHalved(LowPrecision):
    def turns(self, pos, call):
        return tuple(self.halved(y) for y in super().turns(pos, call))


@plants("rope.low_precision", "positions", rope=True, masks=("causal", "window"), first=5000)
class PositionsHalved(LowPrecision):
    def turns(self, pos, call):
        return super().turns(self.halved(pos), call)


class Table(Planted, Attention):
    @classmethod
    def prepare(cls, rng, m):
        last = int(m.kv.pos[-1])
        return m, {"rows": int(rng.integers(m.num_keys // 3, m.num_keys - 3)) + last + 1 - m.num_keys}

    def rotary_positions(self, call):
        return tuple(self.looked_up(p) for p in super().rotary_positions(call))


@plants("rope.table_bounds", "clamped", rope=True, masks=("causal", "window"))
class TableClamped(Table):
    def looked_up(self, pos):
        return np.minimum(pos, self.parameters["rows"] - 1)


@plants("rope.table_bounds", "wrapped", rope=True, masks=("causal", "window"))
class TableWrapped(Table):
    def looked_up(self, pos):
        return pos % self.parameters["rows"]


@plants("pos.left_padding", rope=True, masks=("causal",), pads=4, chunks=True, prefix=False)
class PadsCounted(Planted, Attention):
    """The prompt's positions count its pads, those of later calls count tokens."""

    @classmethod
    def prepare(cls, rng, m):
        prompt = int(rng.integers(8, m.num_keys - 4))
        return m.but(begins=(0, *range(prompt, m.num_keys, int(rng.integers(1, 4))))), {}

    def positions(self, call):
        right = super().positions(call)
        return self.m.kv.pos[0] + np.arange(call.end) if call.index == 0 else right


class NotReset(Planted, Attention):
    def positions(self, call):
        return self.m.kv.pos[call.begin:call.end]


@plants("pack.position_reset", rope=True, masks=("causal", "window"), chunks=False, prefix=False)
class PositionsRunOn(NotReset):
    """Positions run on where they should restart; shown where the documents may read each other."""

    @classmethod
    def prepare(cls, rng, m):
        cut = int(rng.integers(6, m.num_keys - 6))
        pos = m.kv.pos
        return m.but(rope_pos=np.where(np.arange(m.num_keys) < cut, pos, pos - pos[cut])), {}


@plants("alibi.bias", "exponent", alibi=True, rope=False, masks=PLAIN)
class ExponentOffByOne(Planted, Attention):
    """2^(-8h / H) counts h from 0."""

    @classmethod
    def prepare(cls, rng, m):
        h, g = [(8, 2), (16, 4), (8, 4)][int(rng.integers(2))]
        slopes = 2.0 ** (-8.0 * (np.arange(h) + 1) / h)
        return of_heads(rng, m, h, g).but(slopes=slopes), {}

    def slopes(self):
        h = self.m.num_q_heads
        return 2.0 ** (-8.0 * np.arange(h) / h)


def of_heads(rng, m, h, g):
    bias = None if m.bias is None else np.round(rng.normal(0, 1.0, (h, *m.bias.shape[1:])), 2)
    sinks = None if m.sinks is None else np.round(rng.normal(1.0, 1.0, h), 3)
    return m.but(num_q_heads=h, num_kv_heads=g, bias=bias, sinks=sinks)


@plants("alibi.bias", "plain slopes", alibi=True, rope=False, masks=PLAIN, heads=((6, 2), (10, 2), (12, 3), (6, 3)))
class PlainSlopes(Planted, Attention):
    """One geometric row for a number of heads that is no power of two."""

    def slopes(self):
        h = self.m.num_q_heads
        return 2.0 ** (-8.0 * (np.arange(h) + 1) / h)


@plants("alibi.bias", "lost in decode", alibi=True, rope=False, chunks=True, masks=("causal", "window"))
class LostInDecode(Planted, Attention):
    """Built for the length of the call: for one token it is one number, which cancels."""

    @classmethod
    def prepare(cls, rng, m):
        prompt = int(rng.integers(4, m.num_queries - 5))
        return m.but(begins=(0, *range(prompt, m.num_queries))), {}

    def alibi(self, call):
        return super().alibi(call) * (call.num_queries > 1)
