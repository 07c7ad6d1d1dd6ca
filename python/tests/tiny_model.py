"""A small random llama as a Hugging Face folder, and its forward in plain numpy, float64."""
import json

import ml_dtypes
import numpy as np

import plain

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 24, "intermediate_size": 40,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "vocab_size": 258,
          "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 1000.0,
          "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "torch_dtype": "float32",
          "bos_token_id": 256, "eos_token_id": 257}


def weights(seed=0):
    """Tensors by their names in the file, f32."""
    rng = np.random.default_rng(seed)
    make = lambda *shape: (rng.standard_normal(shape) * 0.3).astype(np.float32)  # noqa: E731
    c, out = CONFIG, {}
    q, kv, wide = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"], c["hidden_size"]
    out["model.embed_tokens.weight"], out["lm_head.weight"] = make(c["vocab_size"], wide), make(c["vocab_size"], wide)
    out["model.norm.weight"] = 1 + make(wide)
    for layer in range(c["num_hidden_layers"]):
        shapes = {"input_layernorm": (wide,), "post_attention_layernorm": (wide,), "self_attn.q_proj": (q, wide),
                  "self_attn.k_proj": (kv, wide), "self_attn.v_proj": (kv, wide), "self_attn.o_proj": (wide, q),
                  "mlp.gate_proj": (c["intermediate_size"], wide), "mlp.up_proj": (c["intermediate_size"], wide),
                  "mlp.down_proj": (wide, c["intermediate_size"])}
        for name, shape in shapes.items():
            out[f"model.layers.{layer}.{name}.weight"] = make(*shape) + (len(shape) == 1)
    return out


def byte_letters():
    """The characters by which byte-level vocabularies write the 256 bytes (GPT-2)."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(b if b in kept else next(rest)) for b in range(256)]


def write(folder, tensors):
    """Writes config.json, model.safetensors and a tokenizer of single bytes. Tensors are float32 or bfloat16."""
    header, body = {}, b""
    for name, x in tensors.items():
        header[name] = {"dtype": "BF16" if x.dtype == ml_dtypes.bfloat16 else "F32", "shape": list(x.shape), "data_offsets": [len(body), len(body) + x.nbytes]}
        body += x.tobytes()
    text = json.dumps(header).encode()
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + body)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    special = [{"id": 256 + i, "content": name, "special": True, "single_word": False, "lstrip": False,
                "rstrip": False, "normalized": False} for i, name in enumerate(("<s>", "</s>"))]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {letter: i for i, letter in enumerate(byte_letters())}, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": False, "add_eos_token": False}))
    return folder


def forward(tensors, ids, positions=None):
    """Logits [tokens, vocab_size] in float64; positions: rotary ones other than 0, 1, 2, ..."""
    c = CONFIG
    w = {name: x.astype(np.float64) for name, x in tensors.items()}
    norm = lambda x, name: x / np.sqrt((x * x).mean(-1, keepdims=True) + c["rms_norm_eps"]) * w[name]  # noqa: E731
    frequencies = c["rope_theta"] ** (-2 * np.arange(c["head_dim"] // 2) / c["head_dim"])
    n = len(ids)
    x = w["model.embed_tokens.weight"][list(ids)]
    for layer in range(c["num_hidden_layers"]):
        own = f"model.layers.{layer}."
        h = norm(x, own + "input_layernorm.weight")
        q, k, v = ((h @ w[f"{own}self_attn.{p}_proj.weight"].T).reshape(n, -1, c["head_dim"]) for p in "qkv")
        q, k = (plain.rotate(t, np.arange(n) if positions is None else positions, frequencies, "half_split") for t in (q, k))
        out = plain.attention(q, k, v, np.tri(n, dtype=bool))[0]
        x = x + out.reshape(n, -1) @ w[own + "self_attn.o_proj.weight"].T
        h = norm(x, own + "post_attention_layernorm.weight")
        gate, up = (h @ w[f"{own}mlp.{p}_proj.weight"].T for p in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[own + "mlp.down_proj.weight"].T
    return norm(x, "model.norm.weight") @ w["lm_head.weight"].T
