"""transformers 4.57.6: the second layer of GPT2Model with scale_attn_by_inverse_layer_idx=True.

Report: huggingface/transformers#44380. The path for SDPA, which is chosen unasked, does not read the option; the scale
of layer 1 is twice the declared one.
Seen in 4.46.0, 4.51.3 and 4.57.6; 5.6.0 and 5.24.0 are right, and so is attn_implementation="eager" in all.
Mended: pip install torch==2.4.1 transformers==5.6.0 "numpy<2"
Install: pip install torch==2.4.1 transformers==4.57.6 "numpy<2"
"""
import numpy as np
import torch

HEADS, TOKENS, DIM, LAYER = 2, 6, 4, 1


def declared():
    return {"kind": "attention", "num_q_heads": HEADS, "num_kv_heads": HEADS, "head_dim": DIM, "mask": "causal",
            "q_positions": list(range(TOKENS)), "kv_positions": list(range(TOKENS)), "rope": None,
            "scale": DIM ** -0.5 / (LAYER + 1), "softcap": None, "padding": None}


def inputs():
    rng = np.random.default_rng(62)
    return {name: rng.standard_normal((HEADS, TOKENS, DIM)) for name in "qkv"}


class Given(torch.nn.Module):
    """A projection that gives what it was given, whatever the hidden states are."""

    def __init__(self, *parts):
        super().__init__()
        flat = [torch.tensor(x, dtype=torch.float32).transpose(0, 1).reshape(1, TOKENS, -1) for x in parts]
        self.x = torch.cat(flat, -1)

    def forward(self, hidden):
        return self.x


def subject(q, k, v):
    import transformers

    config = transformers.GPT2Config(vocab_size=8, n_embd=HEADS * DIM, n_head=HEADS, n_layer=2, n_positions=16,
                                     scale_attn_by_inverse_layer_idx=True)
    model = transformers.AutoModel.from_config(config).eval()
    layer = model.h[LAYER].attn
    layer.c_attn, layer.c_proj = Given(q, k, v), torch.nn.Identity()
    seen = []
    layer.register_forward_hook(lambda module, args, out: seen.append(out[0]))
    with torch.no_grad():
        model(torch.arange(TOKENS)[None] % 8)
    return seen[0][0].reshape(TOKENS, HEADS, DIM).transpose(0, 1).numpy()
