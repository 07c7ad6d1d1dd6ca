"""Rotations of arrays."""
import numpy as np

from . import _core
from ._arrays import engine_array, is_torch, like, sizes, to_numpy
from ._core import RopeSpec


def _rope_of(spec):
    return spec if isinstance(spec, RopeSpec) else spec.rope


def rope(x, spec, pos=None, *, inverse=False, rope_length=0):
    """Turns each head of `x` by its token's position, as attention does with q and k.

    Pair (a, b) becomes (a cos - b sin, a sin + b cos), the angle pos * frequency; both times cos_sin_magnitude.

    x            [tokens, heads, dim] or [batch, tokens, heads, dim]
    spec         a RopeSpec, or an AttentionSpec with one
    pos          rotary positions, [tokens] or [batch, tokens]; None: 0, 1, ...
    inverse      undoes the rotation, magnitude included
    rope_length  as in rope_frequencies

    float32, float16 and bfloat16 turn in the engine's f32 arithmetic (the bits of a key in its cache), float64
    in the oracle's. The result has the kind and type of `x`. ValueError for what does not fit.
    """
    batch, length = sizes(x, "x")
    if pos is None:
        pos = np.arange(length)
    pos = np.asarray(to_numpy(pos), np.int64)
    if pos.shape not in ((length,), (batch, length)):
        raise ValueError(f"pos has shape {list(pos.shape)}, expected {[length]} or {[batch, length]}")
    pos = np.broadcast_to(pos, (batch, length)).reshape(-1)
    if str(getattr(x, "dtype", "")).endswith("float64"):
        rows = to_numpy(x).reshape(-1, *x.shape[-2:])
        out = _core.rotate_f64(_rope_of(spec), rows, pos, inverse, rope_length).reshape(tuple(x.shape))
        return like(out, x) if is_torch(x) else out
    return like(_core.rotate_f32(_rope_of(spec), engine_array(x, "x"), pos, inverse, rope_length)
                .reshape(tuple(x.shape)), x)


def rope_frequencies(spec, rope_length=0):
    """Radians a token of each rotary pair, float64: angle = pos * frequency, scaling applied.

    rope_length: tokens the sequence is set up for; only dynamic_ntk and longrope look at it.
    """
    return _core.rope_frequencies(_rope_of(spec), rope_length)
