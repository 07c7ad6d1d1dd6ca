"""local-attention 1.2.2: LocalAttention(4, causal=True, exact_windowsize=True) on three windows of tokens.

Its README: each query sees at most as many keys as the window's size. It sees itself and 4 before.
Seen in 1.2.2.
Install: pip install torch==2.4.1 "numpy<2" local-attention==1.2.2
"""
import numpy as np
import torch

HEADS, WINDOW, TOKENS, DIM = 2, 4, 12, 4


def declared():
    return {"kind": "attention", "num_q_heads": HEADS, "num_kv_heads": HEADS, "head_dim": DIM,
            "mask": f"causal & window({WINDOW})", "q_positions": list(range(TOKENS)),
            "kv_positions": list(range(TOKENS)), "rope": None, "scale": DIM ** -0.5, "softcap": None, "padding": None}


def inputs():
    rng = np.random.default_rng(69)
    return {name: rng.standard_normal((HEADS, TOKENS, DIM)) for name in "qkv"}


def subject(q, k, v):
    from local_attention import LocalAttention

    attend = LocalAttention(WINDOW, causal=True, exact_windowsize=True)
    return attend(*(torch.tensor(x, dtype=torch.float32) for x in (q, k, v))).numpy()
