"""transformers 4.42.4: LlamaForCausalLM.from_pretrained(gguf_file=...) of a file with 4 heads of 16 over 2 key heads.

Report: huggingface/transformers#31766. A GGUF file keeps the rows of q and k with neighbours as pairs, head by head.
They are put back as if there were 8 heads of 8 (and 4 of 8), right only where head_dim is twice the number of heads.
Seen in 4.42.4; 4.46.0 is right.
Mended: pip install torch==2.4.1 transformers==4.46.0 accelerate==1.0.1 "numpy<2" gguf==0.10.0 sentencepiece==0.2.0
Install: pip install torch==2.4.1 transformers==4.42.4 accelerate==1.0.1 "numpy<2" gguf==0.10.0 sentencepiece==0.2.0
"""
import tempfile
from pathlib import Path

import numpy as np
import torch

HEADS, KV_HEADS, TOKENS, DIM = 4, 2, 6, 16
WIDTH = HEADS * DIM


def declared():
    return {"kind": "attention", "num_q_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": DIM, "mask": "causal",
            "q_positions": list(range(TOKENS)), "kv_positions": list(range(TOKENS)),
            "rope": {"dim": DIM, "pairing": "half", "base": 10000.0}, "scale": DIM ** -0.5, "softcap": None,
            "padding": None}


def inputs():
    rng = np.random.default_rng(66)
    return {name: rng.standard_normal((h, TOKENS, DIM)) for name, h in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))}


def weight(x):
    """A projection that gives x[:, t] for token t, whose normed embedding is the unit vector t."""
    columns = x.transpose(0, 2, 1).reshape(-1, TOKENS)
    return np.concatenate([columns, np.zeros((len(columns), WIDTH - TOKENS))], axis=1)


def neighbours(x):
    """Each head's halves interleaved, as GGUF files of Llama keep them."""
    return x.reshape(len(x), TOKENS, 2, DIM // 2).swapaxes(2, 3).reshape(x.shape)


def write(path, q, k, v):
    import gguf

    file = gguf.GGUFWriter(path, "llama")
    file.add_name("tiny")
    file.add_block_count(1)
    file.add_context_length(64)
    file.add_embedding_length(WIDTH)
    file.add_feed_forward_length(8)
    file.add_head_count(HEADS)
    file.add_head_count_kv(KV_HEADS)
    file.add_layer_norm_rms_eps(1e-12)
    file.add_rope_freq_base(10000.0)
    file.add_rope_dimension_count(DIM)
    file.add_vocab_size(TOKENS)
    file.add_tokenizer_model("llama")
    file.add_token_list([str(token) for token in range(TOKENS)])
    file.add_token_scores([0.0] * TOKENS)
    file.add_token_types([1] * TOKENS)
    file.add_bos_token_id(0)
    unit = np.eye(TOKENS, WIDTH)
    tensors = {"token_embd": unit, "output": unit, "output_norm": np.ones(WIDTH),
               "blk.0.attn_norm": np.full(WIDTH, WIDTH ** -0.5), "blk.0.ffn_norm": np.ones(WIDTH),
               "blk.0.attn_q": weight(neighbours(q)), "blk.0.attn_k": weight(neighbours(k)), "blk.0.attn_v": weight(v),
               "blk.0.attn_output": np.eye(WIDTH), "blk.0.ffn_gate": np.zeros((8, WIDTH)),
               "blk.0.ffn_up": np.zeros((8, WIDTH)), "blk.0.ffn_down": np.zeros((WIDTH, 8))}
    for name, x in tensors.items():
        file.add_tensor(f"{name}.weight", np.ascontiguousarray(x, np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def subject(q, k, v):
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        write(str(Path(folder) / "tiny.gguf"), q, k, v)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file="tiny.gguf").eval()
    seen = []
    model.model.layers[0].self_attn.register_forward_hook(lambda module, args, out: seen.append(out[0]))
    with torch.no_grad():
        model(torch.arange(TOKENS)[None])
    return seen[0][0].reshape(TOKENS, HEADS, DIM).transpose(0, 1).numpy()
