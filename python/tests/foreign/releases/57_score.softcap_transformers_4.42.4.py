"""transformers 4.42.4: Gemma2Model as AutoModel makes it, with attn_logit_softcapping=2.

Report: huggingface/transformers#32877. The class that is chosen unasked is the one for SDPA, which caps nothing.
Seen in 4.42.4; in 4.46.0 another class is chosen and caps. The one for SDPA still caps nothing in 4.57.6; 5.24.0
refuses it.
Mended: pip install torch==2.4.1 transformers==4.46.0 accelerate==1.0.1 "numpy<2"
Install: pip install torch==2.4.1 transformers==4.42.4 "numpy<2"
"""
import numpy as np
import torch

HEADS, KV_HEADS, TOKENS, DIM, SOFTCAP = 4, 2, 6, 8, 2.0


def declared():
    return {"kind": "attention", "num_q_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": DIM, "mask": "causal",
            "q_positions": list(range(TOKENS)), "kv_positions": list(range(TOKENS)),
            "rope": {"dim": DIM, "pairing": "half", "base": 10000.0}, "scale": DIM ** -0.5, "softcap": SOFTCAP,
            "padding": None}


def inputs():
    rng = np.random.default_rng(57)
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

    config = transformers.Gemma2Config(
        vocab_size=8, hidden_size=HEADS * DIM, intermediate_size=8, num_hidden_layers=1, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, head_dim=DIM, query_pre_attn_scalar=DIM, attn_logit_softcapping=SOFTCAP,
        rope_theta=10000.0)
    model = transformers.AutoModel.from_config(config).eval()
    layer = model.layers[0].self_attn
    layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj = Given(q), Given(k), Given(v), torch.nn.Identity()
    seen = []
    layer.register_forward_hook(lambda module, args, out: seen.append(out[0]))
    with torch.no_grad():
        model(torch.arange(TOKENS)[None] % 8, use_cache=False)
    return seen[0][0].reshape(TOKENS, HEADS, DIM).transpose(0, 1).numpy()
