"""Models from files against a plain numpy llama."""
import signal
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import sightline as sl
import tiny_model
from test_docs import run

HAS_MODEL = any(Path(sl.__file__).parent.glob("_model*.so"))
needs_model = pytest.mark.skipif(not HAS_MODEL, reason="the package was built without cargo")


@pytest.fixture(scope="module")
def tensors():
    return tiny_model.weights()


@pytest.fixture(scope="module")
def model(tensors, tmp_path_factory):
    return sl.Model(tiny_model.write(tmp_path_factory.mktemp("model") / "tiny", tensors))


IDS = [5, 77, 200, 31, 5, 9, 250, 64, 64, 1]


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@needs_model
def test_logits_and_log_probabilities_are_those_of_plain_numpy(model, tensors):
    want = tiny_model.forward(tensors, IDS)
    got = model.logits(IDS)
    assert got.dtype == np.float32 and np.abs(got - want).max() < 2e-5
    assert np.array_equal(model.logits(IDS, chunk=3), got)
    probs = model.log_probs(IDS)
    assert np.abs(probs - log_softmax(want)[np.arange(9), IDS[1:]]).max() < 2e-5
    both = model.logits([IDS, IDS[:4]])
    assert np.array_equal(both[1], got[:4]) and len(model.log_probs([IDS, IDS[:4]])) == 2
    assert np.array_equal(model.logits(np.array(IDS)), got)


@needs_model
def test_matmul_names_an_arithmetic(model, tensors, tmp_path):
    path = tiny_model.write(tmp_path / "tiny", tensors)
    want = model.logits(IDS)
    assert np.array_equal(sl.Model(path, matmul="native").logits(IDS), want)  # all tensors are f32
    rounded = sl.Model(path, matmul="bf16").logits(IDS)
    assert 0 < np.abs(rounded - want).max() < 0.05 * np.abs(want).max()
    # Weights as they are stored: those of bf16 in bf16 arithmetic, not widened for f32's.
    stored = tiny_model.write(tmp_path / "stored", {name: x.astype(ml_dtypes.bfloat16) for name, x in tensors.items()})
    native, bf16, f32 = (sl.Model(stored, matmul=matmul).logits(IDS) for matmul in ("native", "bf16", "f32"))
    assert np.array_equal(native, bf16) and not np.array_equal(native, f32)
    with pytest.raises(ValueError, match="native, bf16 or f32"):
        sl.Model(path, matmul="int8")


@needs_model
def test_greedy_generation_follows_the_argmax_and_reports_log_probabilities(model, tensors):
    out = model.generate(IDS, max_tokens=6, num_logprobs=2, ignore_end=True)
    ids = list(IDS)
    for step in range(6):
        scores = log_softmax(tiny_model.forward(tensors, ids)[-1])
        assert out.ids[step] == scores.argmax() and abs(out.logprobs[step].logprob - scores.max()) < 2e-5
        assert [x for x, _ in out.logprobs[step].top] == list(np.argsort(-scores, kind="stable")[:2])
        ids.append(out.ids[step])
    assert out.prompt_ids == IDS and out.reason == "length" and len(out.logprobs) == 6
    together = model.generate([IDS, IDS[:3]], max_tokens=6, num_logprobs=2, ignore_end=True)
    assert together[0] == out and together[1] == model.generate(IDS[:3], max_tokens=6, num_logprobs=2, ignore_end=True)


@needs_model
def test_text_in_and_out_sampling_and_stops(model):
    assert model.decode(model.encode("größe, ok")) == "größe, ok"
    assert model.encode("ab</s>", parse_special=True) == [97, 98, 257] and len(model.encode("ab</s>")) == 6
    first = model.generate("hello", max_tokens=12, temperature=1.0, seed=3, ignore_end=True)
    assert first == model.generate("hello", max_tokens=12, temperature=1.0, seed=3, ignore_end=True)
    assert first.ids != model.generate("hello", max_tokens=12, temperature=1.0, seed=4, ignore_end=True).ids
    stop = first.text[3]
    stopped = model.generate("hello", max_tokens=12, temperature=1.0, seed=3, stop=stop, ignore_end=True)
    assert stopped.reason == "stop" and stopped.text == first.text[:first.text.index(stop)]
    assert model.generate("hello", max_tokens=3, echo=True).text.startswith("hello")


@needs_model
def test_what_a_file_says(model):
    assert model.vocab_size == 258 and model.context_length == 128
    specs = model.attention_specs
    assert len(specs) == 2 and specs[0].num_q_heads == 4 and specs[0].num_kv_heads == 2 and specs[0].mask == "causal"
    assert specs[0].rope.theta == 1000.0
    assert model.info["file_kind"].startswith("Hugging Face")


@needs_model
def test_what_does_not_fit_is_a_value_error_with_the_text_of_sightline(model, tensors, tmp_path):
    with pytest.raises(ValueError, match="nowhere"):
        sl.Model(tmp_path / "nowhere")
    wrong = {**tensors, "lm_head.weight": tensors["lm_head.weight"][:, :20].copy()}
    with pytest.raises(ValueError, match="lm_head.weight"):
        sl.Model(tiny_model.write(tmp_path / "wrong", wrong))
    with pytest.raises(ValueError, match="258"):
        model.logits([1, 258])
    with pytest.raises(ValueError, match="at least"):
        model.log_probs([1])
    with pytest.raises(ValueError, match="temperature"):
        model.generate([1], temperature=-1)
    (tiny_model.write(tmp_path / "mute", tensors) / "tokenizer.json").unlink()
    mute = sl.Model(tmp_path / "mute")
    assert mute.logits([1, 2]).shape == (2, 258)
    with pytest.raises(ValueError, match="tokenizer"):
        mute.encode("a")


@needs_model
def test_ctrl_c_ends_a_long_call(tensors, tmp_path):
    folder = tiny_model.write(tmp_path / "tiny", tensors)
    code = (f"import sightline as sl, sys; m = sl.Model({str(folder)!r})\n"
            "print('ready', flush=True)\n"
            "try: m.logits([1] * 200000, chunk=1)\n"
            "except KeyboardInterrupt: print('interrupted')\n")
    # A shell starts what it runs in the background with SIGINT ignored, and Python then leaves it so.
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    try:
        assert child.communicate(timeout=20)[0] == "interrupted\n"
    finally:
        child.kill()


@needs_model
def test_the_blocks_of_the_page_about_models_run(tensors, tmp_path):
    path = tiny_model.write(tmp_path / "tiny", tensors)
    assert run("python model", {"sl": sl, "np": np, "path": path}) == 1


def test_without_the_compiled_part_the_reason_is_said():
    code = ("import sys; sys.modules['sightline._model'] = None\n"
            "import sightline as sl\n"
            "try: sl.Model('x')\n"
            "except ImportError as e: print(e)\n")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "built without cargo" in said and "1.85" in said
