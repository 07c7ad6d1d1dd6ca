"""transformers 4.57.6: Llama with two documents in one row, told apart by position_ids, and attention_mask all ones.

Here the declared positions restart with each document, as position_ids do; case 65 declares ones that run on.
Report: huggingface/transformers#46634. Documents are looked for only where no mask is given (and on PyTorch 2.6):
with a mask that hides nothing the second one reads the first.
Seen in 4.57.6 and 5.24.0; 5.24.0 with PyTorch 2.15 is right without the mask.
Install: pip install torch==2.4.1 transformers==4.57.6 "numpy<2"
"""
import numpy as np
import torch

HEADS, KV_HEADS, DIM = 4, 2, 8
SEGMENTS, POSITIONS = [0] * 4 + [1] * 5, [*range(4), *range(5)]
TOKENS = len(SEGMENTS)


def declared():
    return {"kind": "attention", "num_q_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": DIM,
            "mask": "causal & segment", "segments": SEGMENTS, "q_positions": POSITIONS, "kv_positions": POSITIONS,
            "rope": {"dim": DIM, "pairing": "half", "base": 10000.0}, "scale": DIM ** -0.5, "softcap": None,
            "padding": None}


def inputs():
    rng = np.random.default_rng(67)
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

    config = transformers.LlamaConfig(
        vocab_size=8, hidden_size=HEADS * DIM, intermediate_size=8, num_hidden_layers=1, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS)
    model = transformers.AutoModel.from_config(config).eval()
    layer = model.layers[0].self_attn
    layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj = Given(q), Given(k), Given(v), torch.nn.Identity()
    seen = []
    layer.register_forward_hook(lambda module, args, out: seen.append(out[0]))
    ones, positions = torch.ones(1, TOKENS, dtype=torch.long), torch.tensor([POSITIONS])
    with torch.no_grad():
        model(torch.arange(TOKENS)[None] % 8, attention_mask=ones, position_ids=positions, use_cache=False)
    return seen[0][0].reshape(TOKENS, HEADS, DIM).transpose(0, 1).numpy()
