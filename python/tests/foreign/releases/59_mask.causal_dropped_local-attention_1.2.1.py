"""local-attention 1.2.1: LocalAttention(causal=True, exact_windowsize=True) on one window of tokens.

Report: lucidrains/local-attention#5. Hidden are the keys that are later and too old, joined by `and`: none. With more
windows each query sees all of its own window and the one before: case 68.
Seen in 1.2.1; 1.2.2 is right here, and sees one key too many in longer sequences: case 69.
Mended: pip install torch==2.4.1 "numpy<2" local-attention==1.2.2
Install: pip install torch==2.4.1 "numpy<2" local-attention==1.2.1
"""
import numpy as np
import torch

HEADS, TOKENS, DIM = 2, 8, 4


def declared():
    return {"kind": "attention", "num_q_heads": HEADS, "num_kv_heads": HEADS, "head_dim": DIM, "mask": "causal",
            "q_positions": list(range(TOKENS)), "kv_positions": list(range(TOKENS)), "rope": None, "scale": DIM ** -0.5,
            "softcap": None, "padding": None}


def inputs():
    rng = np.random.default_rng(59)
    return {name: rng.standard_normal((HEADS, TOKENS, DIM)) for name in "qkv"}


def subject(q, k, v):
    from local_attention import LocalAttention

    attend = LocalAttention(TOKENS, causal=True, exact_windowsize=True)
    return attend(*(torch.tensor(x, dtype=torch.float32) for x in (q, k, v))).numpy()
