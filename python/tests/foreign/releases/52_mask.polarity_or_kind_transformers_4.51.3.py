"""transformers 4.51.3: eager attention of Llama with a mask of booleans.

Report: huggingface/transformers#41443. The eager path adds what it is given to the scores: True, which means visible, adds
1, False adds 0, and nothing is hidden.
Install: pip install torch==2.4.1 transformers==4.51.3 "numpy<2"
"""
import numpy as np
import torch

HEADS, KV_HEADS, TOKENS, DIM = 4, 2, 6, 8


def declared():
    return {"kind": "attention", "num_q_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": DIM, "mask": "causal",
            "q_positions": list(range(TOKENS)), "kv_positions": list(range(TOKENS)), "rope": None, "scale": DIM ** -0.5,
            "softcap": None, "padding": None}


def inputs():
    rng = np.random.default_rng(52)
    return {name: rng.standard_normal((h, TOKENS, DIM)) for name, h in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))}


def subject(q, k, v):
    from transformers.models.llama import modeling_llama

    config = modeling_llama.LlamaConfig(hidden_size=HEADS * DIM, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS)
    layer = modeling_llama.LlamaAttention(config, 0).eval()
    q, k, v = (torch.tensor(x[None], dtype=torch.float32) for x in (q, k, v))
    visible = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()[None, None]
    out, _ = modeling_llama.eager_attention_forward(layer, q, k, v, visible, scaling=DIM ** -0.5)
    return out[0].transpose(0, 1).numpy()
