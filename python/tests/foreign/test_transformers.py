"""Small random models of many families with Sightline's attention against their own eager attention."""
import copy

import pytest
import torch
import transformers
from transformers import masking_utils

import sightline.transformers

sightline.transformers.register()

COMMON = {"vocab_size": 97, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
          "eos_token_id": None, "attention_dropout": 0.0}
FAMILIES = {
    "llama": ("LlamaConfig", COMMON),
    "mistral": ("MistralConfig", {**COMMON, "sliding_window": 5}),
    "gemma2": ("Gemma2Config", {**COMMON, "sliding_window": 5, "attn_logit_softcapping": 2.0,
                                "query_pre_attn_scalar": 24}),
    "gemma3": ("Gemma3TextConfig", {**COMMON, "sliding_window": 5, "sliding_window_pattern": 2}),
    "qwen3": ("Qwen3Config", COMMON),
    "phi3": ("Phi3Config", {**{k: v for k, v in COMMON.items() if k != "head_dim"}, "hidden_size": 64,
                            "sliding_window": 6}),
    "cohere2": ("Cohere2Config", {**COMMON, "sliding_window": 5, "layer_norm_eps": 1e-5}),
    "gpt2": ("GPT2Config", {"vocab_size": 97, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 64,
                            "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None, "attn_pdrop": 0.0,
                            "resid_pdrop": 0.0, "embd_pdrop": 0.0}),
    "gpt_oss": ("GptOssConfig", {**COMMON, "sliding_window": 5, "num_local_experts": 2, "num_experts_per_tok": 1}),
}


def models(family, **more):
    """The same weights twice: eager and Sightline, float32."""
    name, fields = FAMILIES[family]
    config = getattr(transformers, name)(**{**fields, **more})
    torch.manual_seed(0)
    eager = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():  # sinks and norms of a fresh model are zeros or ones, which hide mistakes
        for weight in eager.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    ours = copy.deepcopy(eager)
    ours.set_attn_implementation("sightline")
    assert ours.config._attn_implementation == "sightline"
    return eager, ours


def ids(batch=2, length=14):
    return torch.randint(2, 97, (batch, length), generator=torch.Generator().manual_seed(1))


def padding(side):
    mask = torch.ones(2, 14, dtype=torch.long)
    mask[0, :4 if side == "left" else 0] = 0
    mask[1, 9 if side == "right" else 14:] = 0
    return mask


def close(a, b, bound=2e-5):
    return (a - b).abs().max().item() < bound


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_eager_attention_with_and_without_padding(family, monkeypatch):
    eager, ours = models(family)
    monkeypatch.delattr(sightline.transformers.RuleMask, "matrix")  # no mask becomes a matrix on the way
    with torch.no_grad():
        for mask in (None, padding("left"), padding("right")):
            want, got = (m(ids(), attention_mask=mask).logits for m in (eager, ours))
            real = torch.ones(2, 14, dtype=torch.bool) if mask is None else mask.bool()
            assert close(got[real], want[real]), mask


@pytest.mark.parametrize("family", FAMILIES)
def test_generation_with_a_cache_gives_the_same_tokens(family):
    eager, ours = models(family)
    options = {"attention_mask": padding("left"), "max_new_tokens": 12, "do_sample": False, "output_logits": True,
               "return_dict_in_generate": True}
    with torch.no_grad():
        want, got = (m.generate(ids(), **options) for m in (eager, ours))
    assert torch.equal(got.sequences, want.sequences)
    assert close(torch.stack(got.logits), torch.stack(want.logits))


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_of_every_weight_are_those_of_eager_attention(family):
    eager, ours = models(family)
    mask = padding("right")
    labels = ids().masked_fill(mask == 0, -100)
    for model in (eager, ours):
        model.train()
        model(ids(), attention_mask=mask, labels=labels).loss.backward()
    seen = 0
    for (name, want), got in zip(eager.named_parameters(), ours.parameters()):
        if want.grad is None:
            assert got.grad is None, name
            continue
        assert close(got.grad, want.grad, 1e-5 * max(1.0, want.grad.abs().max().item())), name
        seen += 1
    assert seen > 10


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2"])
def test_packed_documents_by_restarting_positions(family):
    eager, ours = models(family)
    positions = torch.cat([torch.arange(9), torch.arange(5)])[None]
    with torch.no_grad():
        want, got = (m(ids(1), position_ids=positions, use_cache=False).logits for m in (eager, ours))
        apart = ours(ids(1)[:, 9:], use_cache=False).logits
    assert close(got, want) and close(got[:, 9:], apart)


def test_a_matrix_of_the_callers_own():
    eager, ours = models("llama")
    visible = torch.tril(torch.ones(14, 14, dtype=torch.bool)) & (torch.rand(14, 14) < 0.7)
    visible |= torch.eye(14, dtype=torch.bool)
    added = torch.zeros(2, 1, 14, 14).masked_fill(~visible, torch.finfo(torch.float32).min)
    with torch.no_grad():
        want = eager(ids(), attention_mask=added).logits
        assert close(ours(ids(), attention_mask=added).logits, want)
        assert close(ours(ids(), attention_mask=visible.expand(2, 1, 14, 14)).logits, want)


def test_finite_numbers_that_stand_for_hidden_hide():
    q, k, v = (torch.randn(1, 2, 5, 8) for _ in range(3))
    added = torch.zeros(1, 1, 5, 5)
    added[..., 3, :] = torch.finfo(torch.float32).min
    added[..., 4, 0] = -3.0
    out, _ = sightline.transformers.attention_forward(None, q, k, v, added)
    assert (out[:, 3] == 0).all()
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=added).transpose(1, 2)
    assert close(out[:, [0, 1, 2, 4]], want[:, [0, 1, 2, 4]], 2e-6)


def test_bf16_is_close_and_dropout_is_refused():
    eager, ours = models("llama")
    with torch.no_grad():
        want = eager(ids()).logits
        half = [copy.deepcopy(m).bfloat16()(ids()).logits.float() for m in (eager, ours)]
    assert close(half[1], want, 2 * (half[0] - want).abs().max().item())
    _, ours = models("llama", attention_dropout=0.1)
    with pytest.raises(ValueError, match="dropout 0.1"):
        ours.train()(ids())


def test_a_static_cache_hides_what_is_not_filled():
    eager, ours = models("llama")
    with torch.no_grad():
        want, got = (m.generate(ids(), max_new_tokens=8, do_sample=False, cache_implementation=c)
                     for m, c in ((eager, None), (ours, "static")))
    assert torch.equal(got, want)


MU = masking_utils
LEFT = torch.tensor([0, 3])
PACKED = torch.tensor([[0] * 5 + [1] * 7, [0] * 12])
POSITIONS = torch.tensor([list(range(5)) + list(range(7)), list(range(12))])
BLOCKS = torch.tensor([[-1] * 3 + [0] * 4 + [-1] + [1] * 4, [-1] * 12])


def sliding_window_overlay(sliding_window):
    """Someone else's, of the same name and another meaning."""
    def inner_mask(batch_idx, head_idx, q_idx, kv_idx):
        return kv_idx > q_idx - 2 * sliding_window

    return inner_mask


FUNCTIONS = {
    "causal": (MU.causal_mask_function, "causal"),
    "all": (MU.bidirectional_mask_function, "all"),
    "window": (MU.sliding_window_causal_mask_function(4), "(window(4) & causal)"),
    "two-sided window": (MU.sliding_window_bidirectional_mask_function(2), "((window(3) & ahead(2)) & all)"),
    "chunks": (MU.chunked_causal_mask_function(4, LEFT), "(segment & causal)"),
    "packed": (MU.and_masks(MU.remap_positions_for_packed_sequence(MU.sliding_window_causal_mask_function(3), POSITIONS),
                            MU.packed_sequence_mask_function(PACKED)), "((window(3) & causal) & segment)"),
    "blocks": (MU.or_masks(MU.causal_mask_function, MU.blockwise_overlay(BLOCKS)), "(causal | span)"),
    "two kinds of documents": (MU.and_masks(MU.chunked_causal_mask_function(4, LEFT),
                                            MU.packed_sequence_mask_function(PACKED)), "dense"),
    "another's function": (MU.and_masks(MU.causal_mask_function, lambda b, h, q, k: (q - k) % 2 == 0), "dense"),
    "another's function of a known name": (MU.and_masks(MU.causal_mask_function, sliding_window_overlay(2)), "dense"),
    "mixed positions": (MU.and_masks(MU.remap_positions_for_packed_sequence(MU.causal_mask_function, POSITIONS),
                                     MU.sliding_window_overlay(3)), "dense"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("padded", [False, True])
def test_composed_mask_functions_become_rules_that_equal_them(name, padded):
    function, expected = FUNCTIONS[name]
    attention_mask = None
    if padded:
        attention_mask = torch.ones(2, 12, dtype=torch.bool)
        attention_mask[1, :3] = False
    mask = sightline.transformers.attention_mask(2, 12, 12, 0, 0, function, attention_mask)
    assert mask.mask.mask == expected and mask.shape == (2, 1, 12, 12)
    want = masking_utils.sdpa_mask(2, 12, 12, 0, 0, function, attention_mask, allow_is_causal_skip=False)
    assert torch.equal(mask.matrix(), want)


@pytest.mark.parametrize("q_offset,kv_offset,q_len,kv_len", [(9, 0, 3, 12), (9, 4, 3, 8)])
def test_offsets_of_a_cache(q_offset, kv_offset, q_len, kv_len):
    function = masking_utils.sliding_window_causal_mask_function(5)
    attention_mask = torch.ones(2, 12, dtype=torch.bool)
    attention_mask[1, :6] = False
    mask = sightline.transformers.attention_mask(2, q_len, kv_len, q_offset, kv_offset, function, attention_mask)
    want = masking_utils.sdpa_mask(2, q_len, kv_len, q_offset, kv_offset, function, attention_mask,
                                   allow_is_causal_skip=False)
    assert torch.equal(mask.matrix(), want)


def test_code_that_computes_with_a_mask_gets_the_matrix_of_its_rules():
    mask = sightline.transformers.attention_mask(2, 6, 6)
    want = torch.ones(6, 6, dtype=torch.bool).tril().expand(2, 1, 6, 6)
    assert mask.ndim == mask.dim() == 4 and mask.dtype == torch.bool
    for got, expected in ((mask[:, :, :, :4], want[..., :4]), (~mask, ~want), (torch.where(mask, 0.0, 1.0),
                          torch.where(want, 0.0, 1.0)), (torch.cat([mask, mask], -1), torch.cat([want, want], -1))):
        assert type(got) is torch.Tensor and torch.equal(got, expected)
