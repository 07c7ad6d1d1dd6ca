"""Attention in plain numpy: forward in calls over a cache, and backward. Right as it stands; every step is a method,
so that a fault overrides the one step that it gets wrong. Slow on purpose: no step knows another's business.
"""
import dataclasses

import numpy as np

from .meaning import Tokens, evaluate
from .rounding import rounded


@dataclasses.dataclass
class Call:
    """New tokens [begin, end) of a sequence; the queries are theirs, or those of another sequence."""
    index: int
    begin: int
    end: int
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    row: int            # of q at which its queries begin; negative for tokens before the first query
    tokens: Tokens      # of the queries

    @property
    def num_queries(self):
        return len(self.q)


class Attention:
    """One run over one sequence. `real` is the type it computes in."""

    def __init__(self, m, real=np.float32, **parameters):
        self.m, self.real, self.parameters = m, real, parameters

    # The run.
    def run(self, x):
        """x: q, k, v, d_out. Returns out, and what else the meaning shows, in the meaning's type."""
        m = self.m
        self.inputs = {name: np.asarray(y, self.real) for name, y in x.items()}
        self.keys = np.zeros((0, m.num_kv_heads, m.head_dim), self.real)
        self.values = np.zeros((0, m.num_kv_heads, m.value_dim), self.real)
        self.held = np.zeros(0, int)  # which token each cached key belongs to
        got = {"out": [], "lse": []}
        weights = np.zeros((m.num_q_heads, m.num_queries, m.num_keys), self.real)
        for call in self.calls():
            out, lse, p = self.answer(call)
            if call.row < 0:
                continue
            got["out"].append(out)
            got["lse"].append(lse)
            if p.shape[2] == len(self.held):
                weights[:, call.row:call.row + call.num_queries, self.held] = p
        answers = {name: np.concatenate(y) for name, y in got.items()}
        answers["weights"] = weights
        if m.gradients:
            answers.update(self.backward())
        return {name: self.given_back(y) for name, y in answers.items() if name in m.shows}

    def given_back(self, x):
        return rounded(x, self.m.type) if self.real is np.float32 else x

    def calls(self):
        m, x = self.m, self.project(self.inputs)
        if m.cross is not None:
            yield Call(0, 0, m.num_keys, x["q"], x["k"], x["v"], 0, m.cross)
            return
        borders = [*(m.prefix + b for b in m.begins), m.num_keys]
        if m.prefix:
            borders.insert(0, 0)
        for index, (begin, end) in enumerate(zip(borders, borders[1:])):
            row = begin - m.prefix
            queries = x["q"][row:row + end - begin] if row >= 0 else np.zeros(
                (end - begin, m.num_q_heads, m.head_dim), self.real)
            yield Call(index, begin, end, queries, x["k"][begin:end], x["v"][begin:end], row, m.kv.part(begin, end))

    def answer(self, call):
        q_pos, k_pos = self.rotary_positions(call)
        q = self.rotate(call.q, q_pos, call)
        self.store(call, self.rotate(call.k, k_pos, call), call.v)
        return self.attend(call, q, *self.read(call))

    # Steps of a call.
    def project(self, x):
        """q, k and v as they come out of the projections."""
        return x

    def positions(self, call):
        return self.m.rotary_positions[call.begin:call.end]

    def rotary_positions(self, call):
        keys = self.positions(call)
        return (keys, keys) if self.m.cross is None else (self.m.cross.pos, keys)

    def store(self, call, k, v):
        self.keys = np.concatenate([self.keys, k])
        self.values = np.concatenate([self.values, v])
        self.held = np.concatenate([self.held, np.arange(call.begin, call.end)])

    def read(self, call):
        return self.keys, self.values

    def attend(self, call, q, keys, values):
        heads = self.head_map()
        s = self.scores(q, keys[:, heads])
        s = self.cap(s)
        s = s + self.bias(call).astype(self.real)
        see = np.broadcast_to(self.visible(call), s.shape)
        p, lse = self.softmax(call, self.hide(call, s, see))
        p, lse = self.empty_rows(call, p, lse, see)
        out = np.einsum("hij,jhd->ihd", p, values[:, heads])
        return self.merge(out), lse.T, p

    def head_map(self):
        return np.arange(self.m.num_q_heads) // self.m.group

    def scale(self):
        return self.m.scale if self.m.scale is not None else self.m.head_dim ** -0.5

    def scores(self, q, k):
        return np.einsum("ihd,jhd->hij", q, k) * self.real(self.scale())

    def cap(self, s):
        c = self.m.softcap
        return c * np.tanh(s / c) if c else s

    def slopes(self):
        return self.m.slopes

    def bias(self, call):
        """ALiBi and what is added by the caller, [heads or 1, queries, held keys]."""
        m, total = self.m, np.zeros((1, 1, len(self.held)))
        if m.slopes is not None:
            total = total + self.alibi(call)
        if m.bias is not None:
            total = total + self.added(call)
        return total

    def alibi(self, call):
        behind = call.tokens.pos[:, None] - self.m.kv.pos[self.held][None, :]
        return -np.asarray(self.slopes())[:, None, None] * behind

    def added(self, call):
        row = max(call.row, 0)
        return self.m.bias[:, row:row + call.num_queries, self.held] if call.row >= 0 else np.zeros(
            (1, call.num_queries, len(self.held)))

    def mask(self, call):
        return self.m.mask

    def held_tokens(self, call):
        kv = self.m.kv
        return Tokens(*(getattr(kv, f.name)[self.held] for f in dataclasses.fields(kv)))

    def visible(self, call):
        """bool [1 or heads, queries, held keys]."""
        kv = self.held_tokens(call)
        see = evaluate(self.mask(call), call.tokens, kv)
        return (see & kv.valid[None, :] & call.tokens.valid[:, None])[None]

    def hide(self, call, s, see):
        return np.where(see, s, -np.inf)

    def softmax(self, call, s):
        top = s.max(axis=-1, keepdims=True)
        if self.m.sinks is not None:
            top = np.maximum(top, self.sinks()[:, None, None])
        top = np.where(np.isfinite(top), top, 0).astype(self.real)
        e = np.exp(s - top)
        total = e.sum(axis=-1, keepdims=True) + self.beside(top)
        with np.errstate(invalid="ignore", divide="ignore"):
            return e / total, (np.log(total) + top)[..., 0]

    def sinks(self):
        return np.asarray(self.m.sinks, self.real)

    def beside(self, top):
        """What joins the denominator without being a key."""
        return np.exp(self.sinks()[:, None, None] - top) if self.m.sinks is not None else 0

    def empty_rows(self, call, p, lse, see):
        sees = see.any(axis=-1)
        return np.where(sees[..., None], p, 0), lse

    def merge(self, out):
        return out

    # Rotation.
    def theta(self, call):
        return self.m.rope["theta"]

    def frequencies(self, call):
        """Radians a token for each pair."""
        r = self.m.rope
        plain = self.theta(call) ** (-np.arange(0, r["dim"], 2) / self.width())
        return scaled(plain, r.get("scaling"), r, self.length(call))

    def width(self):
        return self.m.rope["dim"]

    def length(self, call):
        """Tokens that a length-dependent scaling looks at: those of the sequence."""
        return 0

    def turns(self, pos, call):
        """cos and sin, [tokens, pairs]."""
        angles = np.asarray(pos, float)[:, None] * self.frequencies(call)[None, :]
        magnitude = self.magnitude()
        return magnitude * np.cos(angles), magnitude * np.sin(angles)

    def magnitude(self):
        return self.m.rope.get("magnitude", 1.0)

    def pairing(self):
        return self.m.rope["pairing"]

    def pairs(self):
        dim = self.m.rope["dim"]
        if self.pairing() == "interleaved":
            return np.arange(0, dim, 2), np.arange(1, dim, 2)
        return np.arange(dim // 2), np.arange(dim // 2) + dim // 2

    def rotate(self, x, pos, call, inverse=False):
        if self.m.rope is None or len(x) == 0:
            return x
        cos, sin = (y.astype(self.real)[:, None, :] for y in self.turns(pos, call))
        if inverse:
            sin = -sin
        a, b = self.pairs()
        y = x.copy()
        y[..., a] = x[..., a] * cos - x[..., b] * sin
        y[..., b] = x[..., a] * sin + x[..., b] * cos
        return y

    # Backward: of one call that holds everything.
    def backward(self):
        m, x = self.m, self.inputs
        self.keys, self.values, self.held = self.keys[:0], self.values[:0], self.held[:0]
        (call,) = list(self.calls())
        q_pos, k_pos = self.rotary_positions(call)
        q, k = self.rotate(call.q, q_pos, call), self.rotate(call.k, k_pos, call)
        self.store(call, k, call.v)
        heads = self.head_map()
        raw = self.scores(q, k[:, heads])
        s = self.cap(raw) + self.bias(call).astype(self.real)
        see = np.broadcast_to(self.visible(call), s.shape)
        p, lse = self.softmax(call, np.where(see, s, -np.inf))
        p = np.where(see.any(-1)[..., None], p, 0)
        out = np.einsum("hij,jhd->ihd", p, call.v[:, heads])
        # From here on with what a backward keeps: the log-sum-exps, and a mask that it builds again.
        again = np.broadcast_to(self.visible_backward(call), s.shape)
        p = np.exp(np.where(again & np.isfinite(lse)[..., None], s - lse[..., None], -np.inf))
        d_out = x["d_out"]
        d_p = np.einsum("ihd,jhd->hij", d_out, call.v[:, heads])
        d_s = p * (d_p - self.row_term(d_out, out))
        d_raw = d_s * self.cap_slope(raw) * self.real(self.scale())
        d_q = self.rotate(np.einsum("hij,jhd->ihd", d_raw, k[:, heads]), q_pos, call, inverse=True)
        d_k = self.gather(np.einsum("hij,ihd->jhd", d_raw, q))
        d_k = self.rotate(d_k, k_pos, call, inverse=True)
        d_v = self.gather(np.einsum("hij,ihd->jhd", p, d_out))
        return self.written({"d_q": d_q, "d_k": d_k, "d_v": d_v})

    def visible_backward(self, call):
        return self.visible(call)

    def row_term(self, d_out, out):
        return (d_out * out).sum(-1).T[:, :, None]

    def cap_slope(self, raw):
        c = self.m.softcap
        return 1 - np.tanh(raw / c) ** 2 if c else 1

    def gather(self, d):
        """[keys, query heads, dim] into key heads."""
        return d.reshape(len(d), self.m.num_kv_heads, self.m.group, -1).sum(2)

    def written(self, gradients):
        return gradients


def scaled(plain, scaling, rope, length):
    """Frequencies under a scaling of the context, from the papers' formulas."""
    if scaling is None:
        return plain
    kind, factor = scaling["kind"], scaling.get("factor", 1.0)
    if kind == "linear":
        return plain / factor
    if kind == "llama3":
        wavelength = 2 * np.pi / plain
        context = scaling["original_context"]
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        smooth = (context / wavelength - low) / (high - low)
        blend = (1 - smooth) * plain / factor + smooth * plain
        return np.where(wavelength < context / high, plain, np.where(wavelength > context / low, plain / factor, blend))
    if kind == "dynamic_ntk":
        dim, context = rope["dim"], scaling["original_context"]
        if length <= context:
            return plain
        theta = rope["theta"] * (factor * length / context - (factor - 1)) ** (dim / (dim - 2))
        return theta ** (-np.arange(0, dim, 2) / dim)
    raise ValueError(kind)
