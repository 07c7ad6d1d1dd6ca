"""Arrays of people as the compiled module takes them, and results as they brought theirs.

float32 of numpy, torch, or anything with DLPack or the buffer protocol is read in place, whatever its strides.
float16 and bfloat16 (torch's, or numpy's through ml_dtypes) are widened to float32, which is exact; results are
rounded back to them once. float64 is refused where the engine would lose digits of it.
"""
import sys

import numpy as np


def is_torch(x):
    """True for a torch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def engine_array(x, name):
    """What the engine reads: the same memory, or ValueError with the array's name."""
    if is_torch(x):
        if x.requires_grad:
            raise ValueError(f"{name} requires grad, which nothing would pass on: use sightline.torch, or detach it")
        if x.device.type != "cpu":
            raise ValueError(f"{name} is on {x.device}, expected cpu")
        return x
    if not hasattr(x, "__dlpack__"):
        x = np.asarray(x)
    if "uint16" in str(x.dtype):
        raise ValueError(f"{name} is uint16, expected float32 (or float16, bfloat16); view bits of bfloat16 as "
                         "ml_dtypes.bfloat16")
    if isinstance(x, np.ndarray):
        if x.dtype.name == "bfloat16":
            return x.view(np.uint16)
        if x.dtype.kind not in "fiub":
            raise ValueError(f"{name} is {x.dtype}, expected float32 (or float16, bfloat16)")
    return x


def to_numpy(x, dtype=None):
    """A numpy array, without a copy where the type allows it."""
    if is_torch(x):
        x = x.detach()
        x = (x.float() if str(x.dtype) == "torch.bfloat16" else x).numpy()
    return np.asarray(x, dtype)


def integers(x, name):
    """`x` as int64; ValueError for numbers that are not whole instead of rounding them."""
    x = to_numpy(x)
    if x.dtype.kind in "biu":
        return np.ascontiguousarray(x, dtype=np.int64)
    if x.dtype.kind != "f" and x.size:
        raise ValueError(f"{name} is {x.dtype}, expected integers")
    with np.errstate(invalid="ignore"):
        whole = np.ascontiguousarray(x, dtype=np.int64)
    if not (whole == x).all():
        raise ValueError(f"{name} holds numbers that are not whole")
    return whole


def real_numbers(x, name):
    """`x` as float64; ValueError for complex numbers instead of dropping a part of them."""
    x = to_numpy(x)
    if x.dtype.kind == "c":
        raise ValueError(f"{name} is {x.dtype}, expected real numbers")
    return np.ascontiguousarray(x, dtype=np.float64)


def like(result, template):
    """float32 from the engine as an array of the kind and type of `template`: torch gives torch."""
    if is_torch(template):
        import torch

        return torch.from_numpy(result).to(template.dtype)
    dtype = getattr(template, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.itemsize == 2:
        return result.astype(dtype)
    return result


def sizes(x, name):
    """(num_sequences, tokens of one) of [tokens, heads, dim] or [batch, tokens, heads, dim]."""
    shape = tuple(x.shape) if hasattr(x, "shape") else np.shape(x)
    if len(shape) not in (3, 4):
        raise ValueError(f"{name} has shape {list(shape)}, expected [tokens, heads, dim] or "
                         "[batch, tokens, heads, dim]")
    return (1, *shape)[-4], shape[-3]


def per_sequence(x, name, batch, heads, q_len, kv_len, dtype):
    """`x` broadcast to [batch, heads, q_len, kv_len], by numpy's rule, without a copy."""
    x = to_numpy(x)
    if dtype == np.uint8:
        if x.dtype.kind not in "biu":
            raise ValueError(f"{name} is {x.dtype}, expected bool")
        x = x.astype(bool, copy=False).view(np.uint8)
    else:
        x = x.astype(dtype, copy=False)
    shape = (batch, heads, q_len, kv_len)
    try:
        return np.broadcast_to(x, shape)
    except ValueError:
        raise ValueError(f"{name} has shape {list(x.shape)}, which does not broadcast to {list(shape)} "
                         "[batch, num_q_heads, q_len, kv_len]") from None
