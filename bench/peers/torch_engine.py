"""PyTorch: scaled_dot_product_attention, FlexAttention, and zentorch's operator where that is installed."""
import numpy as np
import torch
import torch.nn.functional as F

from cases import ROTATION_BYTES, AttentionCase

try:
    import zentorch
except ImportError:
    zentorch = None


class Engine:
    def __init__(self, threads):
        torch.set_num_threads(threads)

    def describe(self):
        config = torch.__config__.show().replace("\n", " ")
        version = f"torch {torch.__version__}"
        if zentorch:
            version = f"zentorch {zentorch.__version__}, {version}"
        return {"version": version, "isa": torch.backends.cpu.get_cpu_capability(), "build": " ".join(config.split())}

    def variants(self, case):
        if not isinstance(case, AttentionCase):
            return []
        if zentorch:
            plain = case.mask in ("dense", "causal") and not case.backward and not case.is_chunk
            return ["zentorch (heads folded)" if case.is_decode else "zentorch"] if plain else []
        if case.is_decode:
            return ["torch (enable_gqa)", "torch (heads folded)"]
        flex = case.mask not in ("dense", "causal") and not case.backward
        return ["torch SDPA", "torch FlexAttention"] if flex else ["torch SDPA"]

    def prepare(self, case, variant):
        kind = torch.bfloat16 if case.dtype == "bf16" else torch.float32
        q, k, v = (torch.from_numpy(x)[None].to(kind) for x in case.arrays())
        if case.backward:
            return self.backward(case, q, k, v)
        call = self.call(case, variant)
        copies = 1
        if case.is_decode:
            copies = max(1, int(ROTATION_BYTES // (k.nbytes + v.nbytes)))
        caches = [(k, v)] + [(k.clone(), v.clone()) for _ in range(copies - 1)]
        turn = [0]

        def body():
            turn[0] = (turn[0] + 1) % copies
            with torch.inference_mode():
                return call(q, *caches[turn[0]])

        return body

    @staticmethod
    def result(case, out):
        return out[0].float().numpy().reshape(case.q_heads, case.num_q, case.dim)

    @staticmethod
    def call(case, variant):
        is_causal = case.mask == "causal" and case.num_q == case.num_kv
        folded = (1, case.kv_heads, case.q_heads // case.kv_heads, case.dim)
        if variant == "zentorch":
            return lambda q, k, v: torch.ops.zentorch.zentorch_sdpa(q, k, v, 0.0, is_causal)[0]
        if variant == "zentorch (heads folded)":
            return lambda q, k, v: torch.ops.zentorch.zentorch_sdpa(q.reshape(folded), k, v, 0.0, False)[0]
        if variant == "torch (heads folded)":
            return lambda q, k, v: F.scaled_dot_product_attention(q.reshape(folded), k, v)
        if variant == "torch FlexAttention":
            return flex_call(case)
        gqa = case.q_heads != case.kv_heads
        seen = None if is_causal else case.visible()
        mask = None if seen is None else torch.from_numpy(np.ascontiguousarray(seen))
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal,
                                                              enable_gqa=gqa)

    @staticmethod
    def backward(case, q, k, v):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        out = F.scaled_dot_product_attention(*leaves, is_causal=case.mask == "causal")
        upstream = torch.randn_like(out)

        def body():
            torch.autograd.grad(out, leaves, upstream, retain_graph=True)
            return out.detach()

        return body


def flex_call(case):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    offset = case.num_kv - case.num_q
    window = int(case.mask[6:]) if case.mask.startswith("window") else 0
    documents = torch.from_numpy(case.documents()) if case.mask == "documents" else None
    blocks = torch.from_numpy(case.blocks(128, 0.25)) if case.mask.startswith("blocks128") else None

    def mask_mod(_b, _h, q, k):
        if blocks is not None:
            return blocks[q // 128, k // 128]
        seen = k <= q + offset
        if documents is not None:
            return seen & (documents[q + offset] == documents[k])
        return seen & (q + offset - k < window)

    block_mask = create_block_mask(mask_mod, None, None, case.num_q, case.num_kv, device="cpu")
    compiled = torch.compile(flex_attention, dynamic=False)
    gqa = case.q_heads != case.kv_heads
    return lambda q, k, v: compiled(q, k, v, block_mask=block_mask, enable_gqa=gqa)
