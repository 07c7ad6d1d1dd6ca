"""transformers 4.39.3: Llama with dynamic NTK scaling beyond max_position_embeddings=6, decoding from its cache.

Report: huggingface/transformers#25104. The base follows the length of each step, and cached keys keep the base of
theirs: one call on all 14 tokens and 10 calls on a cache differ in the last row too, by 0.02.
Seen in 4.39.3, 4.46.0 and 4.57.6; up to 6 tokens all agree with the declared meaning.
Install: pip install torch==2.4.1 transformers==4.39.3 "numpy<2"
"""
import numpy as np
import torch

HEADS, KV_HEADS, TOKENS, DIM, TRAINED = 4, 2, 14, 8, 6
CALLS = (5, *[1] * 9)


def declared():
    return {"kind": "cache", "num_q_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": DIM, "mask": "causal",
            "q_positions": list(range(TOKENS)), "kv_positions": list(range(TOKENS)), "chunks": CALLS,
            "rope": {"dim": DIM, "pairing": "half", "base": 10000.0, "scaling": "dynamic_ntk", "factor": 2.0,
                     "original_length": TRAINED},
            "scale": DIM ** -0.5, "softcap": None, "padding": None}


def inputs():
    rng = np.random.default_rng(64)
    return {name: rng.standard_normal((h, TOKENS, DIM)) for name, h in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))}


class Given(torch.nn.Module):
    """A projection that gives the rows of the call, whatever the hidden states are."""

    rows = None

    def __init__(self, x):
        super().__init__()
        self.x = torch.tensor(x, dtype=torch.float32).transpose(0, 1).reshape(1, TOKENS, -1)

    def forward(self, hidden):
        return self.x[:, Given.rows]


def subject(q, k, v):
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=8, hidden_size=HEADS * DIM, intermediate_size=8, num_hidden_layers=1, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, max_position_embeddings=TRAINED, rope_theta=10000.0,
        rope_scaling={"type": "dynamic", "factor": 2.0})
    model = transformers.AutoModel.from_config(config).eval()
    layer = model.layers[0].self_attn
    layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj = Given(q), Given(k), Given(v), torch.nn.Identity()
    seen, past = [], None
    layer.register_forward_hook(lambda module, args, out: seen.append(out[0]))
    with torch.no_grad():
        for rows in torch.arange(TOKENS).split(CALLS):
            Given.rows = rows
            past = model(rows[None] % 8, past_key_values=past, use_cache=True).past_key_values
    return torch.cat(seen, 1)[0].reshape(TOKENS, HEADS, DIM).transpose(0, 1).numpy()
