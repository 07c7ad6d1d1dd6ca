"""What the words of a museum case mean to Sightline: declared() and probes become specs, observations and reports."""
import re

import numpy as np

import sightline as sl

_MASKS = {"full": "all", "causal & given": "causal & dense", "given": "dense"}


def mask_of(words):
    """The text of a mask. window(left, right) of a case counts the query's own key apart, Sightline's with it."""
    if words in _MASKS:
        return _MASKS[words]
    band = re.match(r"window\(left=(\d+), right=(\d+)\)", words)
    if band:
        left, right = int(band.group(1)), int(band.group(2))
        return f"window({left + 1}) & ahead({right})"
    return words


def rope_of(words):
    """A RopeSpec or "none"; an explicit attention_factor multiplies cos and sin."""
    if not words:
        return "none"
    pairing = {"half": "half_split"}.get(words["pairing"], words["pairing"])
    more, scaling = {}, None
    if "scaling" in words:
        scaling = {"kind": words["scaling"], "factor": words["factor"], "original_context": words["original_length"],
                   **{name: words[name] for name in ("beta_fast", "beta_slow") if name in words}}
        more["cos_sin_magnitude"] = words.get("attention_factor", 1.0)
    return sl.rope_spec(rotary_dim=words["dim"], pairing=pairing, theta=words["base"], scaling=scaling, **more)


def _thd(x, num_heads):
    """[heads, tokens, dim] or [tokens, heads * dim] as [tokens, heads, dim]."""
    return x.transpose(1, 0, 2) if x.ndim == 3 else x.reshape(len(x), num_heads, -1)


def explain_attention(declared, probes):
    """The report on a case of kind attention, attention+gradient or cache."""
    heads, kv_heads = declared["num_q_heads"], declared["num_kv_heads"]
    rows = []
    for probe in probes:
        given = {name: probe[name if "x" not in probe else "x"] for name in "qkv"}
        row = {name: _thd(x, heads if name == "q" else kv_heads) for name, x in given.items()}
        answer = probe["answer"]
        q_len = len(row["q"])
        if "gradient" in declared["kind"]:  # output rows, then dV rows
            row["out"], row["d_v"] = _thd(answer[:, :q_len], heads), _thd(answer[:, q_len:], kv_heads)
            row["d_out"] = np.ones_like(row["out"])
        else:
            row["out"] = _thd(answer, heads)
        if "bias" in probe:
            row["bias"] = np.broadcast_to(probe["bias"], (heads, *probe["bias"].shape))
        rows.append(row)
    arrays = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    tokens = {"q_pos": declared["q_positions"], "kv_pos": declared["kv_positions"]}
    padding = declared["padding"] or ""
    pad, pads = re.match(r"key (\d+) is a pad", padding), re.match(r"keys from (\d+) are pads", padding)
    if pad or pads:
        tokens["valid"] = [j != int(pad.group(1)) if pad else j < int(pads.group(1)) for j in tokens["kv_pos"]]
    if "segments" in declared:
        tokens.update(q_segment=declared["segments"], kv_segment=declared["segments"])
    if "rope_positions" in declared:
        tokens.update(q_rope_pos=declared["rope_positions"], kv_rope_pos=declared["rope_positions"])
    if "given_mask" in declared:
        tokens["dense"] = np.array(declared["given_mask"], bool)
    chunks = declared.get("chunks")
    spec = sl.attention_spec(
        num_q_heads=heads, num_kv_heads=kv_heads, qk_head_dim=declared["head_dim"],
        v_head_dim=arrays["v"].shape[-1], mask=mask_of(declared["mask"]), rope=rope_of(declared["rope"]),
        softmax_scale=declared["scale"], logit_softcap=declared["softcap"] or 0.0,
        alibi_slopes=declared["alibi"]["slopes"] if "alibi" in declared else None)
    return sl.diagnose(spec, **arrays, **tokens, dtype="f32",
                       call_begins=list(np.cumsum([0, *chunks[:-1]])) if chunks else None)


def explain_labels(declared, probes):
    """The report on a case of kind labels: what a data collator made of sequences."""
    labels = probes[0]["answer"]
    ids = np.full(labels.shape, declared["pad_id"])
    for row, sequence in zip(ids, declared["sequences"]):
        row[:len(sequence)] = sequence
    real = np.arange(labels.shape[1]) < np.array([[len(s)] for s in declared["sequences"]])
    return sl.check_batch(ids, labels, real, pad_id=declared["pad_id"], eos_id=declared["eos_id"], mask="causal")


def hidden_of(declared, table, ids):
    """What the head reads, [rows, tokens, width], in models without layers: the normed embedding.

    A case whose logits are not in words (23) has a GPT-2, whose last norm is a LayerNorm of 1e-5.
    """
    x = table.astype(np.float64)[ids]
    if declared.get("logits", "").startswith("table"):
        return x
    if declared.get("logits", "").startswith("rms_norm"):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def explain_loss(declared, probes):
    """The report on a case of kind loss: a loss, or a gradient of the head."""
    sequences = declared["sequences"]
    width = max(map(len, sequences))
    ids = np.array([s + [0] * (width - len(s)) for s in sequences])
    labels = np.array([s + [-100] * (width - len(s)) for s in sequences])
    micro = declared.get("micro_batches")
    what = "loss" if declared["returns"] == "loss" else "d_head"
    return sl.check_loss(
        labels, hidden=np.stack([hidden_of(declared, p["table"], ids) for p in probes]),
        head=np.stack([p["head"] for p in probes]), dtype="f32",
        micro_batches=micro and [next(i for i, rows in enumerate(micro) if r in rows) for r in range(len(sequences))],
        **{what: np.stack([p["answer"] for p in probes])})


def explain(declared, probes):
    """The report on any case."""
    kind = declared["kind"]
    if kind == "labels":
        return explain_labels(declared, probes)
    if kind == "loss":
        return explain_loss(declared, probes)
    return explain_attention(declared, probes)
