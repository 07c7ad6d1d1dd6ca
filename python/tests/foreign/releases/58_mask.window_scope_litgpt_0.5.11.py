"""litgpt 0.5.11: a layer with sliding_window_size=4 that decodes from a KV cache.

Report: Lightning-AI/litgpt#2153. The mask of a cached call is boolean; the window is added to it as if to numbers,
which makes it `causal or old`. All earlier tokens are visible.
Seen in 0.5.11; 0.5.13 is right.
Mended: pip install torch==2.4.1 "numpy<2" && pip install --no-deps litgpt==0.5.13 lightning==2.5.0
lightning-utilities==0.11.9 torchmetrics==1.4.0, plus pyyaml psutil safetensors "tokenizers<0.20"
"huggingface_hub<0.30" "jsonargparse[signatures]<4.40" "setuptools<70"
Install: pip install torch==2.4.1 "numpy<2" && pip install --no-deps litgpt==0.5.11 lightning==2.5.0
lightning-utilities==0.11.9 torchmetrics==1.4.0, plus pyyaml psutil safetensors "tokenizers<0.20"
"huggingface_hub<0.30" "jsonargparse[signatures]<4.40" "setuptools<70"
"""
import numpy as np
import torch

HEADS, TOKENS, DIM, WINDOW, CALLS = 2, 8, 4, 4, (3, 1, 1, 1, 1, 1)
WIDTH = 3 * HEADS * DIM


def declared():
    return {"kind": "cache", "num_q_heads": HEADS, "num_kv_heads": HEADS, "head_dim": DIM,
            "mask": f"causal & window({WINDOW})", "q_positions": list(range(TOKENS)),
            "kv_positions": list(range(TOKENS)), "chunks": CALLS, "rope": None, "scale": DIM ** -0.5,
            "softcap": None, "padding": None}


def inputs():
    rng = np.random.default_rng(58)
    return {name: rng.standard_normal((HEADS, TOKENS, DIM)) for name in "qkv"}


class Nothing(torch.nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)


def subject(q, k, v):
    from litgpt.config import Config
    from litgpt.model import GPT

    config = Config(n_layer=1, n_head=HEADS, n_query_groups=HEADS, head_size=DIM, n_embd=WIDTH, block_size=16,
                    vocab_size=TOKENS, padded_vocab_size=TOKENS, rotary_percentage=0.0, bias=False,
                    parallel_residual=False, sliding_window_size=WINDOW, sliding_window_indices=[1])
    model = GPT(config).eval()
    block = model.transformer.h[0]
    block.norm_1 = block.norm_2 = model.transformer.ln_f = model.lm_head = torch.nn.Identity()
    block.mlp = Nothing()
    flat = [x.transpose(1, 0, 2).reshape(TOKENS, HEADS * DIM) for x in (q, k, v)]
    x = torch.tensor(np.concatenate(flat, -1), dtype=torch.float32)
    with torch.no_grad():
        model.transformer.wte.weight.copy_(x)
        block.attn.qkv.weight.copy_(torch.eye(WIDTH))
        block.attn.proj.weight.copy_(torch.eye(WIDTH)[:, :HEADS * DIM])
        model.set_kv_cache(1, max_seq_length=16)
        out = []
        for rows in torch.arange(TOKENS).split(CALLS):
            out.append((model(rows[None], input_pos=rows)[0] - x[rows])[:, :HEADS * DIM])
    return torch.cat(out).reshape(TOKENS, HEADS, DIM).transpose(0, 1).numpy()
