"""What an attention is declared to mean, as plain data, and the masks that it is built from.

A mask is a nested tuple: ("causal",), ("window", 5), ("and", a, b), ("or", a, b). `declare` puts a meaning into the
words of the package under test and is the only function here that touches it.
"""
import dataclasses
from typing import Optional

import numpy as np


@dataclasses.dataclass
class Tokens:
    """What a mask looks at, one entry a token."""
    pos: np.ndarray
    segment: np.ndarray
    start: np.ndarray  # position of the first token of the segment
    span: np.ndarray
    valid: np.ndarray

    def part(self, begin, end):
        return Tokens(*(getattr(self, f.name)[begin:end] for f in dataclasses.fields(self)))


@dataclasses.dataclass
class Meaning:
    """One attention: sizes, mask, rotation, scores, and the calls in which its tokens arrive."""
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int
    mask: tuple
    kv: Tokens
    begins: tuple                    # rows of q at which calls begin
    prefix: int = 0                  # tokens that an earlier call has put into the cache
    cross: Optional[Tokens] = None   # queries that are not the newest tokens
    rope: Optional[dict] = None      # pairing, dim, theta, scaling, magnitude
    rope_pos: Optional[np.ndarray] = None
    scale: Optional[float] = None
    softcap: float = 0.0
    slopes: Optional[np.ndarray] = None
    sinks: Optional[np.ndarray] = None
    bias: Optional[np.ndarray] = None  # [heads, queries, keys]
    gradients: bool = False
    shows: tuple = ("out",)
    loud: float = 1.0
    type: str = "f32"

    @property
    def num_keys(self):
        return len(self.kv.pos)

    @property
    def num_queries(self):
        return len(self.cross.pos) if self.cross is not None else self.num_keys - self.prefix

    @property
    def group(self):
        return self.num_q_heads // self.num_kv_heads

    @property
    def rotary_positions(self):
        return self.kv.pos if self.rope_pos is None else self.rope_pos

    def but(self, **changes):
        return dataclasses.replace(self, **changes)


def mask_text(mask):
    """A mask as people write it."""
    name, *rest = mask
    if name in ("and", "or"):
        return "(" + (" & " if name == "and" else " | ").join(mask_text(m) for m in rest) + ")"
    return f"{name}({rest[0]})" if rest else name


def leaves(mask):
    if mask[0] in ("and", "or"):
        return [leaf for m in mask[1:] for leaf in leaves(m)]
    return [mask]


def rules(mask):
    return [leaf[0] for leaf in leaves(mask)]


def size_of(mask, name):
    """n of the first rule of that name."""
    return next(leaf[1] for leaf in leaves(mask) if leaf[0] == name)


def exchange(mask, name, make):
    """The mask with make(leaf) in place of each rule of that name."""
    if mask[0] in ("and", "or"):
        return (mask[0], *(exchange(m, name, make) for m in mask[1:]))
    return make(mask) if mask[0] == name else mask


def evaluate(mask, q, kv):
    """bool [queries, keys], padding left out of account."""
    name, *rest = mask
    if name in ("and", "or"):
        parts = [evaluate(m, q, kv) for m in rest]
        return np.logical_and.reduce(parts) if name == "and" else np.logical_or.reduce(parts)
    behind = q.pos[:, None] - kv.pos[None, :]
    same = q.segment[:, None] == kv.segment[None, :]
    if name == "all":
        return np.ones(behind.shape, bool)
    if name == "none":
        return np.zeros(behind.shape, bool)
    if name == "causal":
        return behind >= 0
    if name == "window":
        return behind < rest[0]
    if name == "ahead":
        return -behind <= rest[0]
    if name == "first":
        return np.broadcast_to((kv.pos - kv.start < rest[0])[None, :], behind.shape)
    if name == "segment":
        return same
    if name == "chunk":
        return same & ((q.pos - q.start)[:, None] // rest[0] == (kv.pos - kv.start)[None, :] // rest[0])
    if name == "span":
        return same & (q.span[:, None] == kv.span[None, :]) & (q.span[:, None] != 0)
    raise ValueError(name)


def declare(sl, m):
    """(spec, arguments of diagnose beside the arrays) in the words of the package."""
    more = {}
    if m.rope is not None:
        scaling = m.rope.get("scaling")
        more["rope"] = sl.rope_spec(rotary_dim=m.rope["dim"], pairing=m.rope["pairing"], theta=m.rope["theta"],
                                    scaling=scaling, cos_sin_magnitude=m.rope.get("magnitude", 1.0))
    spec = sl.attention_spec(num_q_heads=m.num_q_heads, num_kv_heads=m.num_kv_heads, qk_head_dim=m.head_dim,
                             v_head_dim=m.value_dim, mask=mask_text(m.mask), softmax_scale=m.scale,
                             logit_softcap=m.softcap, alibi_slopes=m.slopes, sink_logits=m.sinks, **more)
    tokens = {"kv_pos": m.kv.pos, "kv_segment": m.kv.segment, "kv_span": m.kv.span,
              "valid": m.kv.valid.astype(np.int64)}
    if m.rope_pos is not None:
        tokens["kv_rope_pos"] = m.rope_pos
    if m.cross is not None:
        tokens.update(q_pos=m.cross.pos, q_segment=m.cross.segment, q_span=m.cross.span)
    if m.cross is None:
        tokens["call_begins"] = m.begins
    return spec, tokens
