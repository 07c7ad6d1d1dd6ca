"""Attention and rotations in plain numpy, float64, sharing no code with the package: what the tests hold it against."""
import numpy as np


def softmax_rows(scores):
    """Softmax over the last axis; a row of minus infinity gives 0."""
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total)


def attention(q, k, v, visible, *, scale=None, softcap=0.0, bias=0.0):
    """(out, weights, scores); q [.., q_len, H, d], k and v [.., kv_len, Hk, d], visible and bias broadcast to
    [.., H, q_len, kv_len]."""
    q, k, v = (np.moveaxis(np.asarray(x, np.float64), -2, -3) for x in (q, k, v))
    group = q.shape[-3] // k.shape[-3]
    k, v = np.repeat(k, group, -3), np.repeat(v, group, -3)
    scores = q @ np.swapaxes(k, -1, -2) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    scores = np.where(visible, scores + bias, -np.inf)
    weights = softmax_rows(scores)
    return np.moveaxis(weights @ v, -3, -2), weights, scores


def rotate(x, pos, frequencies, pairing, magnitude=1.0):
    """x [tokens, heads, dim] turned by pos [tokens]."""
    out = np.array(x, np.float64)
    n = len(frequencies)
    first = np.arange(n) * 2 if pairing == "interleaved" else np.arange(n)
    second = first + (1 if pairing == "interleaved" else n)
    angle = np.asarray(pos)[:, None, None] * np.asarray(frequencies)
    a, b = np.array(out[..., first]), np.array(out[..., second])
    out[..., first] = magnitude * (a * np.cos(angle) - b * np.sin(angle))
    out[..., second] = magnitude * (a * np.sin(angle) + b * np.cos(angle))
    return out
