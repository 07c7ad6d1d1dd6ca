"""The rows that rivals run too, as arrays: inputs, masks, useful work, and a check of any result against float64. Knows
no engine."""
import re

import numpy as np

import row_names
from row_names import ModelCase  # noqa: F401: for the engines

ROTATION_BYTES = 1 << 30  # of the caches that a rival reads in rotation: less than ours, in its favour


class AttentionCase(row_names.AttentionCase):
    def visible(self):
        """[num_q, num_kv] booleans; None where every key is visible."""
        q = np.arange(self.num_kv - self.num_q, self.num_kv)[:, None]
        k = np.arange(self.num_kv)[None, :]
        if self.mask == "dense" or self.is_decode:
            return None
        if self.mask == "causal":
            return k <= q
        if match := re.fullmatch(r"window(\d+)", self.mask):
            return (k <= q) & (q - k < int(match[1]))
        if self.mask == "documents":
            ids = self.documents()
            return (k <= q) & (ids[None, :] == ids[-self.num_q:, None])
        if match := re.fullmatch(r"blocks(\d+)-(\d+)", self.mask):
            block = int(match[1])
            coarse = self.blocks(block, int(match[2]) / 100)
            return np.repeat(np.repeat(coarse, block, 0), block, 1)
        raise ValueError(self.mask)

    def documents(self):
        """Log-normal documents of mean 512, sigma 0.8, as our rows have them."""
        rng = np.random.default_rng(7)
        ids = []
        while len(ids) < self.num_kv:
            length = max(16, int(np.exp(np.log(512) - 0.32 + 0.8 * rng.standard_normal())))
            ids += [ids[-1] + 1 if ids else 0] * length
        return np.array(ids[:self.num_kv])

    def blocks(self, block, density):
        rng = np.random.default_rng(11)
        return rng.random((self.num_q // block, self.num_kv // block)) < density

    def work(self):
        """Floating point operations of the visible pairs, or bytes of keys and values."""
        if self.is_decode:
            return 2.0 * self.kv_heads * self.num_kv * self.dim * (2 if self.dtype == "bf16" else 4)
        seen = self.visible()
        pairs = self.num_q * self.num_kv if seen is None else int(seen.sum())
        return (10.0 if self.backward else 4.0) * self.dim * self.q_heads * pairs

    def arrays(self):
        """q [Hq, num_q, dim], k and v [Hkv, num_kv, dim], f32 (rounded to bf16 where the row is)."""
        rng = np.random.default_rng(1)
        shapes = [(self.q_heads, self.num_q), (self.kv_heads, self.num_kv), (self.kv_heads, self.num_kv)]
        arrays = [rng.standard_normal((*shape, self.dim), dtype=np.float32) for shape in shapes]
        return [round_bf16(x) for x in arrays] if self.dtype == "bf16" else arrays

    def error(self, out):
        """The largest error of some rows of `out` [Hq, num_q, dim], scaled by the sum of P|v|."""
        q, k, v = self.arrays()
        seen = self.visible()
        rows = sorted({0, self.num_q // 3, self.num_q - 1})
        worst = 0.0
        for head in range(self.q_heads):
            keys, values = (x[head // (self.q_heads // self.kv_heads)].astype(np.float64) for x in (k, v))
            scores = q[head, rows].astype(np.float64) @ keys.T / np.sqrt(self.dim)
            if seen is not None:
                scores = np.where(seen[rows], scores, -np.inf)
            weights = np.exp(scores - np.maximum(scores.max(1, keepdims=True), -1e30))
            total = weights.sum(1, keepdims=True)
            weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
            scale = np.maximum(weights @ np.abs(values), 1e-30)
            difference = np.abs(np.asarray(out[head, rows], np.float64) - weights @ values) / scale
            worst = max(worst, float(difference[total[:, 0] > 0].max(initial=0.0)))
        return worst


def round_bf16(x):
    bits = x.view(np.uint32)
    return ((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000).astype(np.uint32).view(np.float32)


def parse(name):
    return row_names.parse(name, AttentionCase)
