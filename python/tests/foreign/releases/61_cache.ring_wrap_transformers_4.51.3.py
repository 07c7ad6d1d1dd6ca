"""transformers 4.51.3: a sliding layer of Gemma 2 that decodes from a HybridCache, sliding_window=4, prompt of 2.

Report: huggingface/transformers#37574. The ring turns when it holds 3 tokens, not when it holds 4: the oldest key is
lost and an empty slot, a key and value of 0, is seen in its place until it leaves the window.
Seen in 4.46.0 and 4.51.3; 4.57.6 is right.
Mended: pip install torch==2.4.1 transformers==4.57.6 "numpy<2"
Install: pip install torch==2.4.1 transformers==4.51.3 "numpy<2"
"""
import numpy as np
import torch

HEADS, KV_HEADS, TOKENS, DIM, WINDOW = 4, 2, 10, 8, 4
CALLS = (2, 1, 1, 1, 1, 1, 1, 1, 1)


def declared():
    return {"kind": "cache", "num_q_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": DIM,
            "mask": f"causal & window({WINDOW})", "q_positions": list(range(TOKENS)),
            "kv_positions": list(range(TOKENS)), "chunks": CALLS,
            "rope": {"dim": DIM, "pairing": "half", "base": 10000.0}, "scale": DIM ** -0.5, "softcap": None,
            "padding": None}


def inputs():
    rng = np.random.default_rng(61)
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

    config = transformers.Gemma2Config(
        vocab_size=8, hidden_size=HEADS * DIM, intermediate_size=8, num_hidden_layers=1, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, head_dim=DIM, query_pre_attn_scalar=DIM, attn_logit_softcapping=None,
        sliding_window=WINDOW, max_position_embeddings=16, rope_theta=10000.0)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    layer = model.layers[0].self_attn
    layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj = Given(q), Given(k), Given(v), torch.nn.Identity()
    seen = []
    layer.register_forward_hook(lambda module, args, out: seen.append(out[0]))
    cache = transformers.HybridCache(config, max_batch_size=1, max_cache_len=16, device="cpu", dtype=torch.float32)
    with torch.no_grad():
        for rows in torch.arange(TOKENS).split(CALLS):
            Given.rows = rows
            model(rows[None] % 8, past_key_values=cache, cache_position=rows, position_ids=rows[None])
    return torch.cat(seen, 1)[0].reshape(TOKENS, HEADS, DIM).transpose(0, 1).numpy()
