"""torch 2.4.1: scaled_dot_product_attention(is_causal=True) in a decode step of 2 tokens on 3 cached ones.

Report: pytorch/pytorch#108108. The triangle begins at key 0, so the new tokens see one and two of the five keys. PyTorch
documents it; for whoever declares the positions 3 and 4 it is a fault.
Install: pip install torch==2.4.1 "numpy<2"
"""
import numpy as np
import torch

HEADS, PAST, NEW, DIM = 2, 3, 2, 4


def declared():
    return {"kind": "attention", "num_q_heads": HEADS, "num_kv_heads": HEADS, "head_dim": DIM, "mask": "causal",
            "q_positions": [3, 4], "kv_positions": list(range(PAST + NEW)), "rope": None, "scale": DIM ** -0.5,
            "softcap": None, "padding": None}


def inputs():
    rng = np.random.default_rng(51)
    return {name: rng.standard_normal((HEADS, n, DIM)) for name, n in (("q", NEW), ("k", PAST + NEW), ("v", PAST + NEW))}


def subject(q, k, v):
    q, k, v = (torch.tensor(x[None], dtype=torch.float32) for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)[0].numpy()
