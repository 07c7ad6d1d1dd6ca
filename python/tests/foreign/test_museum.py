"""Real releases with publicly reported faults: each named first, with its parameters; controls raise no alarm.

Nor do later releases that were mended, asked the same.
"""
import pytest

import museum
import museum_words

# What the fault of a case measures; cases that are not here have nothing to measure.
PARAMETERS = {
    "07_mask.window_off_by_one_mlx-lm_0.26.3": {"keys": 1},
    "24_loss.label_shift_transformers_4.51.3": {"shift": 2},
    "25_mask.composition_tinygrad_0.10.0": {"rule": 2},
    "26_cache.position_offset_rotary-embedding-torch_0.2.6": {"offset": 0},
    "32_cache.ring_wrap_litgpt_0.5.12": {"slots": 4},
    "53_mask.window_off_by_one_onnxruntime_1.22.1": {"keys": 1},
    "55_mask.fill_value_onnxruntime_1.25.1": {"fill": -2},
    "61_cache.ring_wrap_transformers_4.51.3": {"slots": 4, "empty": 1},
    "62_score.scale_transformers_4.57.6": {"factor": 2},
    "66_rope.pairing_transformers_4.42.4": {"width": 8},
    "68_mask.causal_dropped_local-attention_1.2.1": {"block": 4, "back": 1},
    "69_mask.window_off_by_one_local-attention_1.2.2": {"keys": 1},
}

CASES = museum.cases()
if not CASES:
    pytest.skip("no museum: SIGHTLINE_MUSEUM names its folder", allow_module_level=True)


def report_on(path, mended=False):
    try:
        museum.environment(path, mended)
    except RuntimeError as error:
        pytest.skip(f"{path.stem} cannot be installed: {str(error).splitlines()[-1]}")
    return museum_words.explain(*museum.answers(path, mended))


@pytest.mark.parametrize("path", [p for p in CASES if museum.slug_of(p)], ids=lambda p: p.stem)
def test_a_real_faulty_release_is_named_first(path):
    report = report_on(path)
    assert report.verdict == "fault", str(report)
    assert report.faults[0].slug == museum.slug_of(path), str(report)
    assert len(report.faults) == 1, str(report)
    measured = report.faults[0].parameters
    for name, value in PARAMETERS.get(path.stem, {}).items():
        assert measured[name] == pytest.approx(value, rel=1e-3), str(report)


@pytest.mark.parametrize("path", [p for p in CASES if not museum.slug_of(p)], ids=lambda p: p.stem)
def test_a_control_raises_no_alarm(path):
    report = report_on(path)
    assert report.verdict in ("agrees", "rounding"), str(report)


@pytest.mark.parametrize("path", [p for p in CASES if museum.installs(p, mended=True)], ids=lambda p: p.stem)
def test_a_mended_release_agrees(path):
    report = report_on(path, mended=True)
    assert report.verdict in ("agrees", "rounding"), str(report)
