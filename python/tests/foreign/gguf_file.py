"""Writes GGUF files of small random llamas in f32 or f16, so that llama.cpp can read what Sightline reads.

Shares no code with the writer of the engine: layout of GGUF version 3 from ggml/docs/gguf.md.
"""
import struct

import numpy as np

_U32, _I32, _F32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_F32_TENSOR, _F16_TENSOR = 0, 1


def _text(x):
    data = x.encode()
    return struct.pack("<Q", len(data)) + data


def _value(x):
    """(type, bytes) of a metadata value; whole numbers are u32, lists take the type of their first."""
    if isinstance(x, bool):
        return _BOOL, struct.pack("<B", x)
    if isinstance(x, (int, np.integer)):
        return _U32, struct.pack("<I", x)
    if isinstance(x, float):
        return _F32, struct.pack("<f", x)
    if isinstance(x, str):
        return _STRING, _text(x)
    kind = _I32 if isinstance(x[0], int) and not isinstance(x[0], bool) else _value(x[0])[0]
    items = b"".join(struct.pack("<i", item) if kind == _I32 else _value(item)[1] for item in x)
    return _ARRAY, struct.pack("<IQ", kind, len(x)) + items


def write(path, metadata, tensors):
    """metadata: key to value; tensors: name to an array of f32 or f16, the slowest axis first."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    for key, x in metadata.items():
        kind, data = _value(x)
        head += _text(key) + struct.pack("<I", kind) + data
    body = b""
    for name, x in tensors.items():
        kind = {np.dtype("f4"): _F32_TENSOR, np.dtype("f2"): _F16_TENSOR}[x.dtype]
        head += _text(name) + struct.pack("<I", x.ndim) + b"".join(struct.pack("<Q", n) for n in reversed(x.shape))
        head += struct.pack("<IQ", kind, len(body))
        body += np.ascontiguousarray(x).tobytes()
        body += b"\0" * (-len(body) % 32)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + body)
    return path


SIZES = {"width": 128, "heads": 8, "kv_heads": 2, "head_dim": 32, "ffn": 192, "layers": 3, "context": 512}
VOCABULARY = 3 + 256 + 3


def byte_vocabulary():
    """The tokenizer.* keys of a SentencePiece vocabulary of every byte and three pieces; <s> begins a text."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "a", "b"]
    types = [2, 3, 3] + [6] * 256 + [1] * 3
    return {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": pieces,
            "tokenizer.ggml.scores": [0.0] * len(pieces), "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0}


def metadata(architecture="llama", sizes=SIZES, **more):
    """`more`: keys after the architecture's name with "__" for "."."""
    keys = {"general.architecture": architecture, "general.name": "random"}
    own = {"context_length": sizes["context"], "embedding_length": sizes["width"], "block_count": sizes["layers"],
           "feed_forward_length": sizes["ffn"], "attention.head_count": sizes["heads"],
           "attention.head_count_kv": sizes["kv_heads"], "attention.key_length": sizes["head_dim"],
           "attention.value_length": sizes["head_dim"], "attention.layer_norm_rms_epsilon": 1e-5,
           "rope.dimension_count": sizes["head_dim"], "rope.freq_base": 10000.0, "vocab_size": VOCABULARY,
           **{key.replace("__", "."): x for key, x in more.items()}}
    keys.update({f"{architecture}.{key}": x for key, x in own.items()})
    return {**keys, **byte_vocabulary()}


def weights(seed, sizes=SIZES):
    """Tensors by their names in a file: random, sharp enough in attention that positions matter."""
    rng = np.random.default_rng(seed)
    make = lambda scale, *shape: (rng.standard_normal(shape) * scale).astype(np.float32)  # noqa: E731
    wide, q = sizes["width"], sizes["heads"] * sizes["head_dim"]
    kv, ffn = sizes["kv_heads"] * sizes["head_dim"], sizes["ffn"]
    fan = lambda out, n, gain=1.0: make(gain / np.sqrt(n), out, n)  # noqa: E731
    tensors = {"token_embd.weight": make(1.0, VOCABULARY, wide), "output.weight": fan(VOCABULARY, wide, 2.0),
               "output_norm.weight": 1 + make(0.1, wide)}
    for layer in range(sizes["layers"]):
        own = {"attn_norm": 1 + make(0.1, wide), "ffn_norm": 1 + make(0.1, wide), "attn_q": fan(q, wide, 1.5),
               "attn_k": fan(kv, wide, 1.5), "attn_v": fan(kv, wide), "attn_output": fan(wide, q),
               "ffn_gate": fan(ffn, wide), "ffn_up": fan(ffn, wide), "ffn_down": fan(wide, ffn)}
        tensors.update({f"blk.{layer}.{name}.weight": x for name, x in own.items()})
    return tensors


def permuted_rows(matrix, heads):
    """Rows in halves, [heads, 2, dim / 2], written as neighbours, [heads, dim / 2, 2], as converters do."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def unpermuted_rows(matrix, heads):
    rows, columns = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
