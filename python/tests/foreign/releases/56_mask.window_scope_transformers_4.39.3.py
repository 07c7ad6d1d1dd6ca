"""transformers 4.39.3: MistralModel with attn_implementation="sdpa" and sliding_window=3.

Report: huggingface/transformers#28980. The window never reaches the mask that is made for SDPA: all earlier tokens are
visible.
Seen in 4.39.3; 4.40.2 has one key too many, 4.42.4, 4.46.0 and 4.51.3 are right.
Mended: pip install torch==2.4.1 transformers==4.46.0 accelerate==1.0.1 "numpy<2"
Install: pip install torch==2.4.1 transformers==4.39.3 "numpy<2"
"""
import numpy as np
import torch

HEADS, KV_HEADS, TOKENS, DIM, WINDOW = 4, 2, 8, 8, 3


def declared():
    return {"kind": "attention", "num_q_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": DIM,
            "mask": f"causal & window({WINDOW})", "q_positions": list(range(TOKENS)),
            "kv_positions": list(range(TOKENS)), "rope": {"dim": DIM, "pairing": "half", "base": 10000.0},
            "scale": DIM ** -0.5, "softcap": None, "padding": None}


def inputs():
    rng = np.random.default_rng(56)
    return {name: rng.standard_normal((h, TOKENS, DIM)) for name, h in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))}


class Given(torch.nn.Module):
    """A projection that gives what it was given, whatever the hidden states are."""

    def __init__(self, x):
        super().__init__()
        self.x = torch.tensor(x, dtype=torch.float32).transpose(0, 1).reshape(1, TOKENS, -1)

    def forward(self, hidden):
        return self.x


def subject(q, k, v):
    import transformers

    config = transformers.MistralConfig(
        vocab_size=8, hidden_size=HEADS * DIM, intermediate_size=8, num_hidden_layers=1, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, sliding_window=WINDOW, rope_theta=10000.0)
    model = transformers.AutoModel.from_config(config, attn_implementation="sdpa").eval()
    layer = model.layers[0].self_attn
    layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj = Given(q), Given(k), Given(v), torch.nn.Identity()
    seen = []
    layer.register_forward_hook(lambda module, args, out: seen.append(out[0]))
    with torch.no_grad():
        model(torch.arange(TOKENS)[None] % 8)
    return seen[0][0].reshape(TOKENS, HEADS, DIM).transpose(0, 1).numpy()
