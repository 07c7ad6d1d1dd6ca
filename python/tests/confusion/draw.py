"""Draws meanings at random: sizes that hide nothing, masks, rotations, scores, and the calls the tokens come in."""
import numpy as np

from .meaning import Meaning, Tokens, leaves
from .rounding import rounded

# Query and key heads that are neither one, nor equal, nor the square of each other, so that no map of heads is its own
# neighbour.
HEADS = ((6, 2), (8, 2), (10, 2), (6, 3), (12, 3), (12, 4))
HEAD_DIMS = (8, 12, 16, 20, 24)
THETAS = (10000.0, 500000.0, 1000000.0, 50000.0, 4321.0, 250.0)


def tokens(n, first=0, segments=None, spans=None, pads=0):
    valid = np.arange(n) >= pads
    pos = np.maximum(np.arange(n) - pads, 0) + first
    segment = np.zeros(n, int) if segments is None else segments
    start = np.array([pos[(segment == s) & valid].min() for s in segment])
    return Tokens(pos, segment, start, np.zeros(n, int) if spans is None else spans, valid)


def documents(rng, n):
    """Numbers of three documents of unlike lengths."""
    borders = np.sort(rng.choice(np.arange(4, n - 4), 2, replace=False))
    return np.searchsorted(borders, np.arange(n), side="right")


def images(rng, n, segments=None):
    """Two spans of three to five tokens, with text around."""
    spans = np.zeros(n, int)
    at = int(rng.integers(1, 4))
    for number in (1, 2):
        length = int(rng.integers(3, 6))
        spans[at:at + length] = number
        at += length + int(rng.integers(2, 5))
    return spans if segments is None else np.where(segments == segments[0], spans, 0)


def calls(rng, n, equal=False):
    """Rows at which calls of unlike lengths begin; single tokens among them."""
    length, begins, at = int(rng.integers(2, 6)), [], 0
    while at < n:
        begins.append(at)
        at += length if equal else int(rng.choice([1, 1, 2, 3, 5, 7]))
    return tuple(begins)


def draw_mask(rng, name, n):
    w = int(rng.integers(3, n // 2))
    c = int(rng.integers(3, n // 3))
    return {"causal": ("causal",),
            "window": ("and", ("causal",), ("window", w)),
            "segment": ("and", ("causal",), ("segment",)),
            "documents": ("segment",),
            "chunk": ("and", ("causal",), ("chunk", c)),
            "span": ("or", ("causal",), ("span",)),
            "first": ("and", ("causal",), ("or", ("window", w), ("first", int(rng.integers(1, 4))))),
            "all": ("all",)}[name]


def alibi_slopes(heads):
    """2^(-8 h / H) for powers of two, h from 1; else those of the power below, then every other one of the power
    above."""
    def geometric(count):
        return [2.0 ** (-8.0 * (h + 1) / count) for h in range(count)]

    below = 2 ** int(np.log2(heads))
    return np.array((geometric(below) + geometric(2 * below)[::2])[:heads])


def draw_rope(rng, head_dim, partial):
    dim = head_dim // 4 * 2 if partial else head_dim
    return {"pairing": str(rng.choice(["half_split", "interleaved"])), "dim": dim,
            "theta": float(rng.choice(THETAS))}


def draw(rng, *, masks=("causal", "window", "segment", "chunk", "span"), rope=None, partial=None, chunks=None,
         equal_calls=False, prefix=None, first=None, pads=0, softcap=None, sinks=None, alibi=None, bias=None, loud=None,
         same_dims=None, gradients=False, one_type=None, scale=None, heads=HEADS, cross=False, shows=None):
    """A meaning. Each option None: by chance; True: with it; False: without."""
    def chance(option, share):
        return bool(rng.random() < share) if option is None else bool(option)

    h, g = heads[int(rng.integers(len(heads)))]
    d = int(rng.choice(HEAD_DIMS))
    dv = d if chance(same_dims, 0.5) else int(rng.choice([x for x in HEAD_DIMS if x != d]))
    n = int(rng.integers(19, 42))
    name = str(rng.choice(masks))
    mask = draw_mask(rng, name, n)
    segments = documents(rng, n) if name in ("segment", "documents") else None
    spans = images(rng, n, segments) if name == "span" else None
    start = int(rng.choice([0, 0, 7, 100])) if first is None else first
    m = Meaning(h, g, d, dv, mask, tokens(n, start, segments, spans, pads), (0,))
    m.type = one_type or str(rng.choice(["f32", "bf16", "f16"]))
    if chance(prefix, 0.4) and not gradients and not pads and not cross:
        m.prefix = int(rng.integers(3, 9))
    if chance(chunks, 0.6) and not gradients and not cross:
        m.begins = (0, *(b for b in calls(rng, m.num_queries, equal_calls)[1:] if b > pads))  # pads come first
    by_bias = chance(alibi, 0.2) if rope is not True else bool(alibi)
    if not by_bias and chance(rope, 0.75):
        m.rope = draw_rope(rng, d, chance(partial, 0.4))
    if by_bias:
        m.slopes = alibi_slopes(h)
    if chance(softcap, 0.2):
        m.softcap = float(rng.choice([5.0, 8.0, 15.0]))
    if chance(sinks, 0.2):
        m.sinks = np.round(rng.normal(1.0, 1.0, h), 3)
    if chance(scale, 0.15):
        m.scale = float(np.round(d ** -0.5 * rng.uniform(0.6, 1.5), 4))
    if cross:
        queries = int(rng.integers(5, 12))
        shift = int(rng.integers(2, 5))  # so many queries stand before every key
        m.kv = tokens(n, start + shift)
        m.cross = tokens(queries, start)
    if chance(bias, 0.15):
        m.bias = np.round(rng.normal(0, 1.0, (h, m.num_queries, n)), 2)
    m.gradients = gradients
    if gradients:
        m.shows = ("out", "d_q", "d_k", "d_v")
    elif shows is not None:
        m.shows = shows
    elif rng.random() < 0.3:
        m.shows = ("out", "lse")
    m.loud = 1.0 if not loud else float(loud)
    return m


def draw_inputs(rng, m):
    """q, k, v and d_out as the type holds them, float32."""
    def normal(*shape):
        return rounded(rng.normal(0, 1.3, shape), m.type)

    x = {"q": rounded(m.loud * normal(m.num_queries, m.num_q_heads, m.head_dim), m.type),
         "k": normal(m.num_keys, m.num_kv_heads, m.head_dim), "v": normal(m.num_keys, m.num_kv_heads, m.value_dim)}
    if m.gradients:
        x["d_out"] = normal(m.num_queries, m.num_q_heads, m.value_dim)
    return x


def has(m, rule):
    return any(leaf[0] == rule for leaf in leaves(m.mask))
