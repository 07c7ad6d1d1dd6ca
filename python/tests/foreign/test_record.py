"""Recorded models: agreement where they are right, and the name of the fault where one is planted in their code."""
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers.models.llama import modeling_llama

import sightline as sl
from test_transformers import ids, models, padding

PROGRAM = Path(os.environ.get("SIGHTLINE_PROGRAM", Path(__file__).resolve().parents[3] / "build/release/bin/sightline"))


def recorded(model, *args, **kwargs):
    with torch.no_grad(), sl.record(model) as dump:
        model(*args, **kwargs)
    return dump


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "gemma3", "qwen3", "gpt2", "cohere2", "phi3"])
def test_right_models_agree_with_what_their_config_declares(family):
    for model in models(family):
        dump = recorded(model, ids())
        for layer in range(3):
            report = dump.diagnose(layer)
            assert report.verdict in ("agrees", "rounding"), (layer, str(report))


def test_padding_caches_and_packed_documents():
    _, model = models("mistral")
    dump = recorded(model, ids(), attention_mask=padding("left"))
    assert dump.diagnose(1).ok
    for each in (model, models("llama")[1]):  # a cache that keeps a window, and one that keeps all
        for cache in ("dynamic", "static"):
            with torch.no_grad(), sl.record(each) as dump:
                each.generate(ids(), max_new_tokens=8, do_sample=False, cache_implementation=cache)
            arrays = dump.arrays(1)
            assert arrays["q"].shape == (2, 21, 4, 16) and list(arrays["call_begins"]) == [0, *range(14, 21)]
            assert dump.diagnose(1).ok, str(dump.diagnose(1))
    dump = recorded(model, ids(1), position_ids=torch.cat([torch.arange(9), torch.arange(5)])[None], use_cache=False)
    assert dump.spec(0).mask == "causal & window(5) & segment" and dump.diagnose(0).ok


def interleaved(q, k, cos, sin, unsqueeze_dim=1):
    """Neighbours turn together, on weights whose halves do."""
    half = q.shape[-1] // 2
    cos, sin = (x[..., :half].unsqueeze(unsqueeze_dim) for x in (cos, sin))

    def turn(x):
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

    return turn(q), turn(k)


def wide_window(query, key, value, scaling, window, **kwargs):
    q_len, kv_len = query.shape[2], key.shape[2]
    back = torch.arange(kv_len - q_len, kv_len)[:, None] - torch.arange(kv_len)
    visible = (back >= 0) & (back <= window)
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, visible, scale=scaling, enable_gqa=True)


FAULTS = {
    "rope.pairing": ("apply_rotary_pos_emb", interleaved),
    "score.scale": ("eager_attention_forward", lambda m, q, k, v, mask, scaling, **more:
                    EAGER(m, q, k, v, mask, scaling=scaling / 2, **more)),
    "mask.window_off_by_one": ("eager_attention_forward", lambda m, q, k, v, mask, scaling, **more: (
        wide_window(q, k, v, scaling, 5).transpose(1, 2), None)),
    "head.gqa_mapping": ("eager_attention_forward", lambda m, q, k, v, mask, scaling, **more: (
        EAGER(m, q, torch.cat([k, k], 1), torch.cat([v, v], 1), mask, scaling=scaling, **more))),
}
EAGER = modeling_llama.eager_attention_forward


def faulty(slug, monkeypatch):
    """A small llama with one fault in its code, and what it declares."""
    eager, _ = models("llama")
    name, code = FAULTS[slug]
    spec = None
    if slug == "head.gqa_mapping":  # repeat_kv would repeat what is repeated
        monkeypatch.setattr(modeling_llama, "repeat_kv", lambda x, n: x)
    monkeypatch.setattr(modeling_llama, name, code)
    dump = recorded(eager, ids(), use_cache=False)
    if slug == "mask.window_off_by_one":
        fields = json.loads(dump.spec(1).to_json())
        spec = sl.AttentionSpec.from_json(json.dumps({**fields, "mask": "causal & window(5)"}))
    return dump, spec


@pytest.mark.parametrize("slug", FAULTS)
def test_a_fault_in_the_models_own_code_is_named(slug, monkeypatch):
    dump, spec = faulty(slug, monkeypatch)
    report = dump.diagnose(1, spec)
    assert report.faults and report.faults[0].slug == slug and report.faults[0].certain, str(report)


@pytest.mark.skipif(not PROGRAM.exists(), reason="the program is not built")
def test_the_program_reads_what_was_saved(tmp_path, monkeypatch):
    _, model = models("llama")
    paths = recorded(model, ids()).save(tmp_path / "right")
    assert [p.name for p in paths] == ["layer00.npz", "layer01.npz", "layer02.npz"]
    assert set(np.load(tmp_path / "right" / "hidden.npz")) == {"layer00", "layer01", "layer02"}

    def check(path):
        spec = path.with_name(path.name.split(".")[0] + ".json")
        done = subprocess.run([PROGRAM, "check", path, "--spec", spec, "--json"], capture_output=True, text=True)
        return json.loads(done.stdout)

    assert all(check(p)["verdict"] in ("agrees", "rounding") for p in paths)
    paths = recorded(model, ids(), attention_mask=padding("left")).save(tmp_path / "padded")
    assert len(paths) == 6 and all(check(p)["verdict"] in ("agrees", "rounding") for p in paths)
    dump, _ = faulty("rope.pairing", monkeypatch)
    assert [f["slug"] for f in check(dump.save(tmp_path / "wrong")[1])["faults"]][0] == "rope.pairing"


def test_nothing_stays_behind_and_nothing_seen_is_said():
    from transformers import AttentionInterface

    _, model = models("llama")
    before = AttentionInterface.get_interface, modeling_llama.apply_rotary_pos_emb
    with pytest.raises(RuntimeError), sl.record(model):
        raise RuntimeError
    recorded(model, ids())
    assert (AttentionInterface.get_interface, modeling_llama.apply_rotary_pos_emb) == before
    assert not model._forward_pre_hooks and not any(m._forward_hooks for m in model.modules())
    with pytest.raises(ValueError, match="no attention was seen"), sl.record(model):
        pass


def test_hidden_states_are_those_after_each_block():
    _, model = models("llama")
    dump = recorded(model, ids())
    with torch.no_grad():
        want = model.model(ids(), output_hidden_states=True).hidden_states
    for layer in range(2):  # the last of `want` is normed
        assert np.array_equal(dump.layers[layer].hidden[0], want[layer + 1].numpy())


ROTATIONS = {
    "partial": ("phi3", {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.5}),
    "linear": ("llama", {"rope_type": "linear", "rope_theta": 50.0, "factor": 3.0}),
    "llama3": ("llama", {"rope_type": "llama3", "rope_theta": 50.0, "factor": 4.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 16}),
}


@pytest.mark.parametrize("name", ROTATIONS)
def test_rotations_are_read_from_the_config(name):
    family, parameters = ROTATIONS[name]
    eager, _ = models(family, rope_parameters=parameters)
    dump = recorded(eager, ids())
    assert dump.diagnose(1).ok, str(dump.diagnose(1))
    eager.config.rope_parameters["rope_theta"] = 60.0  # a config that the weights and the code do not follow
    report = dump.diagnose(1)
    assert report.faults[0].slug.startswith("rope."), str(report)
    eager.config.rope_parameters["rope_type"] = "dynamic"
    with pytest.raises(ValueError, match="'dynamic'"):
        dump.spec(1)
