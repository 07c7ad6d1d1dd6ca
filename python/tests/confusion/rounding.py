"""Element types in plain numpy: rounding to f32, bf16, f16 and the size of one rounding. Not the package's."""
import numpy as np

UNITS = {"f32": 2.0 ** -24, "bf16": 2.0 ** -9, "f16": 2.0 ** -12}


def to_bf16(x):
    """The nearest bf16 of each number, ties to even, as float32."""
    x = np.ascontiguousarray(x, np.float32)
    bits = x.view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(x), rounded, x)


def to_f16(x):
    """The nearest f16 of each number as float32; what is too large is infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(x, np.float32).astype(np.float16).astype(np.float32)


def rounded(x, type_name):
    """x in a type, as float32."""
    return {"f32": lambda y: np.asarray(y, np.float32), "bf16": to_bf16, "f16": to_f16}[type_name](x)
