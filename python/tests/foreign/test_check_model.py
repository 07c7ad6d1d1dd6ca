"""check_model on small random models: right ones raise no alarm, and what is planted in their code is named."""
import sys

import pytest
import torch
import transformers
from torch.nn import functional as F

import sightline as sl
from test_transformers import COMMON, FAMILIES, models

SMALL = {k: v for k, v in COMMON.items() if k not in ("attention_dropout", "head_dim")}
GPT = {"vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0,
       "bos_token_id": 1, "eos_token_id": None}
MORE = {
    "qwen2": ("Qwen2Config", SMALL), "olmo2": ("Olmo2Config", SMALL), "granite": ("GraniteConfig", {
        **SMALL, "attention_multiplier": 0.3, "residual_multiplier": 0.7, "logits_scaling": 2.0}),
    "glm": ("GlmConfig", COMMON), "starcoder2": ("Starcoder2Config", {**SMALL, "sliding_window": 6}),
    "gemma": ("GemmaConfig", COMMON), "smollm3": ("SmolLM3Config", SMALL),
    "stablelm": ("StableLmConfig", {**SMALL, "hidden_size": 64}),
    "mixtral": ("MixtralConfig", {**SMALL, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "gpt_neox": ("GPTNeoXConfig", {**GPT, "intermediate_size": 64}),
    "opt": ("OPTConfig", {**GPT, "ffn_dim": 64, "word_embed_proj_dim": 48, "max_position_embeddings": 64,
                          "dropout": 0.0}),
    "bloom": ("BloomConfig", {**GPT, "n_layer": 2, "n_head": 4}),
    "falcon": ("FalconConfig", {**GPT, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "gptj": ("GPTJConfig", {"vocab_size": 97, "n_embd": 48, "n_layer": 2, "n_head": 4, "rotary_dim": 8,
                            "n_positions": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}),
    "smollm3, a layer without rotation": ("SmolLM3Config", {**SMALL, "num_hidden_layers": 4}),
    "cohere2, a layer without rotation": ("Cohere2Config", {**COMMON, "num_hidden_layers": 4, "sliding_window": 5,
                                                            "layer_norm_eps": 1e-5}),
    "llama, linear positions": ("LlamaConfig", {**COMMON, "rope_parameters": {
        "rope_type": "linear", "rope_theta": 50.0, "factor": 3.0}}),
    "llama, dynamic positions": ("LlamaConfig", {**COMMON, "rope_parameters": {
        "rope_type": "dynamic", "rope_theta": 50.0, "factor": 3.0}}),
}


def small(family, **more):
    """A random model whose weights are no zeros and ones, in eval mode."""
    if family in FAMILIES:
        return models(family, **more)[0]
    name, fields = MORE[family]
    torch.manual_seed(0)
    config = getattr(transformers, name)(**{**fields, **more})
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    return model


@pytest.mark.parametrize("family", [*FAMILIES, *MORE])
def test_right_models_raise_no_alarm(family):
    report = sl.check_model(small(family))
    assert report.ok, str(report)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_types_raise_no_alarm(dtype):
    report = sl.check_model(small("llama").to(getattr(torch, dtype)))
    assert report.ok, str(report)


@pytest.mark.parametrize("implementation", ["sdpa", "sightline"])
def test_other_attention_raises_no_alarm(implementation):
    model = small("mistral")
    model.set_attn_implementation(implementation)
    report = sl.check_model(model)
    assert report.ok, str(report)


def source(model):
    """The module of the model's code."""
    return sys.modules[type(model).__module__]


def attention(change):
    """Plants an attention in place of the eager one: change(module, q, k, v, mask, **more) -> the same changed."""
    def plant(model, monkeypatch):
        eager = source(model).eager_attention_forward

        def attend(module, query, key, value, attention_mask, **more):
            return eager(module, *change(module, query, key, value, attention_mask), **more)

        monkeypatch.setattr(source(model), "eager_attention_forward", attend)
    return plant


def rows_and_keys(query, key):
    past = key.shape[2] - query.shape[2]
    return torch.arange(past, key.shape[2])[:, None], torch.arange(key.shape[2])


def added(visible, query):
    return torch.zeros(visible.shape, dtype=query.dtype).masked_fill(~visible, torch.finfo(query.dtype).min)


@attention
def peek(module, query, key, value, mask):
    rows, keys = rows_and_keys(query, key)
    return query, key, value, torch.maximum(mask if mask is not None else added(keys <= rows, query)[None, None],
                                            added(keys == rows + 1, query)[None, None])


def blind_to_padding(model, monkeypatch):
    inner = model.model if hasattr(model, "model") else model.transformer
    forward = inner.forward

    def without(*args, attention_mask=None, **more):
        is_padding = attention_mask is not None and attention_mask.ndim == 2
        return forward(*args, attention_mask=None if is_padding else attention_mask, **more)

    monkeypatch.setattr(inner, "forward", without)


@attention
def top_left(module, query, key, value, mask):
    rows, keys = rows_and_keys(query, key)
    past = key.shape[2] - query.shape[2]
    return (query, key, value, mask) if past == 0 or query.shape[2] == 1 else (
        query, key, value, added(keys <= rows - past, query)[None, None])


def tiled_heads_on_a_cache(model, monkeypatch):
    eager = source(model).eager_attention_forward

    def attend(module, query, key, value, *args, **more):
        if key.shape[2] == query.shape[2]:
            return eager(module, query, key, value, *args, **more)
        # Heads in an order in which reading key head h div 2 is reading h mod 2 in theirs.
        order = [0, 2, 1, 3]
        out, weights = eager(module, query[:, order], key, value, *args, **more)
        return out[:, :, order], weights

    monkeypatch.setattr(source(model), "eager_attention_forward", attend)


@attention
def detached_keys(module, query, key, value, mask):
    return query, key.detach() if module.layer_idx == 1 else key, value, mask


@attention
def half_scale(module, query, key, value, mask):
    return query / 2, key, value, mask


def positions_restart(model, monkeypatch):
    if hasattr(model, "transformer"):
        learned = model.transformer.wpe
        forward = learned.forward
        monkeypatch.setattr(learned, "forward", lambda ids: forward(ids - ids[..., :1]))
        return
    rotary = type(model.model.rotary_emb)
    forward = rotary.forward
    monkeypatch.setattr(rotary, "forward", lambda self, x, position_ids, *more: forward(
        self, x, position_ids - position_ids[:, :1] if position_ids.min() > 0 else position_ids, *more))


def loss(compute):
    def plant(model, monkeypatch):
        monkeypatch.setattr(model, "loss_function", lambda logits, labels, vocab_size, **more: compute(
            logits.float(), labels), raising=False)
    return plant


def shifted(count):
    return loss(lambda logits, labels: F.cross_entropy(
        logits[:, :logits.shape[1] - count].flatten(0, 1), labels[:, count:].flatten()))


def all_positions(logits, labels):
    total = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
    return total / labels[:, 1:].numel()


def padding_by_value_is_no_target(logits, labels):
    labels = labels.masked_fill(labels == 0, -100)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def branch_without_gradient(model, monkeypatch):
    mlp = (model.model.layers if hasattr(model, "model") else model.transformer.h)[1].mlp
    forward = mlp.forward
    monkeypatch.setattr(mlp, "forward", lambda x: forward(x).detach())


def dropout_left_on(model, monkeypatch):
    block = (model.model.layers if hasattr(model, "model") else model.transformer.h)[1]
    forward = block.mlp.forward
    monkeypatch.setattr(block.mlp, "forward", lambda x: F.dropout(forward(x), 0.1, training=True))


def rows_have_other_positions(model, monkeypatch):
    rotary = type(model.model.rotary_emb)
    forward = rotary.forward
    monkeypatch.setattr(rotary, "forward", lambda self, x, position_ids: forward(
        self, x, position_ids * (1 + torch.arange(x.shape[0])[:, None])))


def future_in_training(model, monkeypatch):
    attention(lambda module, q, k, v, mask: (q, k, v, torch.zeros_like(mask) if module.training else mask))(
        model, monkeypatch)


def mask_of_documents_ignored(model, monkeypatch):
    forward = model.model.forward

    def without(*args, attention_mask=None, **more):
        is_given = attention_mask is not None and attention_mask.ndim == 4
        return forward(*args, attention_mask=torch.ones(attention_mask.shape[0], attention_mask.shape[-1])
                       if is_given else attention_mask, **more)

    monkeypatch.setattr(model.model, "forward", without)


class OpenBackward(torch.autograd.Function):
    """Scores whose hidden pairs pass gradients as if they were visible."""

    @staticmethod
    def forward(ctx, scores, mask):
        weights = torch.softmax(scores + mask, -1)
        ctx.save_for_backward(torch.softmax(scores, -1))
        return weights

    @staticmethod
    def backward(ctx, d_weights):
        weights, = ctx.saved_tensors
        return weights * (d_weights - (d_weights * weights).sum(-1, keepdim=True)), None


def backward_without_mask(model, monkeypatch):
    def attend(module, query, key, value, mask, scaling, **more):
        key, value = (source(model).repeat_kv(x, module.num_key_value_groups) for x in (key, value))
        weights = OpenBackward.apply(query @ key.transpose(2, 3) * scaling, mask)
        return (weights @ value).transpose(1, 2).contiguous(), weights

    monkeypatch.setattr(source(model), "eager_attention_forward", attend)


def rows_stay(model, monkeypatch):
    monkeypatch.setattr(transformers.DynamicCache, "reorder_cache", lambda cache, beam_idx: None)


def values_stay(model, monkeypatch):
    def turn(cache, beam_idx):
        for layer in cache.layers:
            layer.keys = layer.keys.index_select(0, beam_idx)

    monkeypatch.setattr(transformers.DynamicCache, "reorder_cache", turn)


def stored_for_query_heads(model, monkeypatch):
    from transformers.cache_utils import DynamicLayer

    group = model.config.num_attention_heads // model.config.num_key_value_heads
    update = DynamicLayer.update

    def expanded(layer, keys, values, *args, **more):
        both = update(layer, *(x.repeat_interleave(group, 1) for x in (keys, values)), *args, **more)
        return tuple(x[:, ::group] for x in both)

    monkeypatch.setattr(DynamicLayer, "update", expanded)


def rotation_of_every_layer(kind):
    """Every layer turns as those of one type are to."""
    def plant(model, monkeypatch):
        rotary = type(model.model.rotary_emb)
        forward = rotary.forward
        monkeypatch.setattr(rotary, "forward", lambda self, x, position_ids, layer_type=None: forward(
            self, x, position_ids, kind))
    return plant


def norms_skipped(*names, layers=(0, 1, 2)):
    def plant(model, monkeypatch):
        for i in layers:
            for name in names:
                monkeypatch.setattr(getattr(model.model.layers[i].self_attn, name), "forward", lambda x: x)
    return plant


def one_norm_over_all_heads(model, monkeypatch):
    def over_all(norm):
        def forward(x):
            wide = x.double()
            axes = (-1, 1 if x.shape[1] in (2, 4) and x.shape[2] not in (2, 4) else 2)
            weight = norm.weight if "gemma" not in type(norm).__name__.lower() else 1 + norm.weight
            return (weight * wide * (wide.square().mean(axes, keepdim=True) + 1e-6).rsqrt()).to(x.dtype)
        return forward

    for layer in model.model.layers:
        for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm):
            monkeypatch.setattr(norm, "forward", over_all(norm))


def norms_after_rotation(model, monkeypatch):
    rotate = source(model).apply_rotary_pos_emb
    eager = source(model).eager_attention_forward
    kept = {}
    for layer in model.model.layers:
        attend = layer.self_attn
        kept[attend.layer_idx] = attend.q_norm.forward, attend.k_norm.forward
        for norm in (attend.q_norm, attend.k_norm):
            monkeypatch.setattr(norm, "forward", lambda x: x)

    def attention(module, query, key, *args, **more):
        of_q, of_k = kept[module.layer_idx]
        return eager(module, of_q(query), of_k(key), *args, **more)

    monkeypatch.setattr(source(model), "eager_attention_forward", attention)
    assert rotate is source(model).apply_rotary_pos_emb


PLANTED = [
    ("rope.per_layer", rotation_of_every_layer("sliding_attention"), ["gemma3"]),
    ("rope.per_layer", rotation_of_every_layer("full_attention"), ["gemma3"]),
    ("head.qk_norm", norms_skipped("q_norm", "k_norm"), ["qwen3", "gemma3", "olmo2"]),
    ("head.qk_norm", norms_skipped("k_norm", layers=[1]), ["qwen3", "gemma3"]),
    ("head.qk_norm", one_norm_over_all_heads, ["qwen3", "gemma3"]),
    ("head.qk_norm", norms_after_rotation, ["qwen3", "gemma3"]),
    ("cache.beam_reorder", rows_stay, ["llama", "gpt2"]),
    ("cache.beam_reorder", values_stay, ["qwen3"]),
    ("cache.gqa_expansion", stored_for_query_heads, ["llama", "qwen3"]),
    ("mask.causal_dropped", peek, ["llama", "qwen3", "gpt2", "mistral"]),
    ("cache.position_offset", positions_restart, ["llama", "qwen3", "gpt2", "phi3"]),
    ("mask.padding_ignored", blind_to_padding, ["llama", "qwen3", "gpt2"]),
    ("head.gqa_mapping", tiled_heads_on_a_cache, ["llama", "qwen3", "mistral"]),
    ("mask.top_left_alignment", top_left, ["llama", "qwen3", "gpt2"]),
    ("loss.label_shift", shifted(0), ["llama", "gpt2", "gemma2"]),
    ("loss.label_shift", shifted(2), ["llama", "gpt2", "mistral"]),
    ("loss.normalisation", loss(all_positions), ["llama", "gpt2", "qwen3"]),
    ("loss.scope", loss(padding_by_value_is_no_target), ["llama", "gpt2"]),
    ("grad.severed", detached_keys, ["llama", "qwen3", "gpt2", "gemma2"]),
    ("grad.severed", branch_without_gradient, ["llama", "gpt2", "gemma3"]),
    ("score.scale", half_scale, ["llama", "gpt2"]),
    ("mask.causal_dropped", future_in_training, ["llama", "qwen3"]),
    ("pack.cross_document", mask_of_documents_ignored, ["llama", "qwen3"]),
    ("rope.batch_row", rows_have_other_positions, ["llama", "qwen3"]),
    ("grad.mask_mismatch", backward_without_mask, ["llama", "qwen3"]),
]
NAMES = [(slug, plant, family) for slug, plant, families in PLANTED for family in families]


@pytest.mark.parametrize("slug, plant, family", NAMES)
def test_what_is_planted_is_named(slug, plant, family, monkeypatch):
    model = small(family)
    plant(model, monkeypatch)
    report = sl.check_model(model)
    assert report.verdict == "fault" and {f.slug for f in report.faults} == {slug}, str(report)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
def test_dropout_that_is_left_on_is_named_with_its_place(family, monkeypatch):
    model = small(family)
    dropout_left_on(model, monkeypatch)
    report = sl.check_model(model)
    assert report.verdict == "broken", str(report)
    assert "dropout is left on in eval(): 0.1 in" in report.summary and "1.mlp" in report.summary, report.summary


def test_the_parameters_of_what_is_named(monkeypatch):
    model = small("llama")
    tiled_heads_on_a_cache(model, monkeypatch)
    fault, = sl.check_model(model).faults
    assert fault.certain and fault.parameters["layer"] == 0 and "on a cache" in fault.what, fault
    model = small("gpt2")
    positions_restart(model, monkeypatch)
    fault, = sl.check_model(model, tokens=20).faults
    assert fault.parameters == {"offset": -10}, fault
    model = small("qwen3")
    detached_keys(model, monkeypatch)
    report = sl.check_model(model)
    assert report.faults[0].variant == "dk" and report.faults[0].parameters["layer"] == 1, str(report)
    evidence = [line["what"] for line in report.evidence]
    assert "the gradient is not right" in evidence and "the objective is right" in evidence
    assert any("model.layers.1.self_attn.k_proj.weight" in line for line in evidence)
    model = small("llama")
    shifted(0)(model, monkeypatch)
    evidence = [line["what"] for line in sl.check_model(model).evidence]
    assert "the gradient is right" in evidence and "the objective is not right" in evidence


def test_what_cannot_be_named_is_unknown_with_its_layer(monkeypatch):
    model = small("llama")

    @attention
    def reversed_keys(module, query, key, value, mask):
        return query, key.flip(2) if module.layer_idx == 2 else key, value, mask

    reversed_keys(model, monkeypatch)
    report = sl.check_model(model)
    assert report.verdict in ("unknown", "fault") and not any(f.certain and f.slug.startswith("rope")
                                                              for f in report.faults), str(report)
    assert "layer 2" in report.summary or any(f.parameters.get("layer") == 2 for f in report.faults), str(report)


def test_what_follows_from_a_fault_is_not_named(monkeypatch):
    model = small("gemma2")  # its windows are lost too, so that no single fault explains the later calls
    top_left(model, monkeypatch)
    report = sl.check_model(model)
    assert report.verdict == "unknown" and "layer 0 in later calls on a cache" in report.summary, str(report)


def test_packing_is_held_where_it_is_promised():
    model = small("gpt_oss")  # told by positions alone, its documents read each other
    assert sl.check_model(model).ok
    report = sl.check_model(model, packing=True)
    assert [f.slug for f in report.faults] == ["pack.cross_document"], str(report)
    assert sl.check_model(small("llama"), packing=True).ok


def test_the_model_is_as_before():
    model = small("llama").to(torch.bfloat16).train()
    model.model.layers[0].eval()
    model.lm_head.weight.grad = torch.ones_like(model.lm_head.weight)

    def tensors():
        return [*model.named_parameters(), *model.named_buffers()]

    before = {name: (x.data_ptr(), x.dtype, x.clone()) for name, x in tensors()}
    drawn = torch.random.get_rng_state()
    assert sl.check_model(model).ok
    for name, x in tensors():
        pointer, dtype, value = before[name]
        assert x.data_ptr() == pointer and x.dtype == dtype and torch.equal(x, value), name
    assert model.training and not model.model.layers[0].training and model.model.layers[1].training
    assert model.lm_head.weight.grad.eq(1).all() and model.model.norm.weight.grad is None
    assert torch.equal(torch.random.get_rng_state(), drawn)


def test_gradients_of_the_caller_are_kept():
    model = small("llama")
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    sl.check_model(model)
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in model.parameters())


def test_a_frozen_model_is_held_without_its_gradient():
    report = sl.check_model(small("llama").requires_grad_(False))
    assert report.ok, str(report)
    assert any("no parameter requires one" in spot for spot in report.blind_spots), report.blind_spots


@pytest.mark.parametrize("fill", [torch.finfo(torch.float32).min, -torch.inf])
def test_suppressed_columns_hide_nothing(fill, monkeypatch):
    def suppress(module, args, out):
        out = out.clone()
        out[..., -1] = fill
        return out

    model = small("llama")
    model.lm_head.register_forward_hook(suppress)
    assert not sl.check_model(model).faults
    peek(model, monkeypatch)
    assert "mask.causal_dropped" in {f.slug for f in sl.check_model(model).faults}


def test_what_is_no_model_is_refused_and_what_cannot_be_called_is_broken(monkeypatch):
    with pytest.raises(ValueError, match="takes a transformers model, got int"):
        sl.check_model(5)
    model = small("llama")
    with pytest.raises(ValueError, match="at least 12"):
        sl.check_model(model, tokens=4)

    def fails(*args, **more):
        raise RuntimeError("no kernel")

    monkeypatch.setattr(model.model, "forward", fails)
    report = sl.check_model(model)
    assert report.verdict == "broken" and "no kernel" in report.summary
    monkeypatch.undo()
    with torch.no_grad():
        model.model.norm.weight[3] = float("nan")
    assert sl.check_model(model).verdict == "broken"
