"""sl.check_batch on arrays as data collators make them."""
import numpy as np
import pytest

import sightline as sl

EOS, NONE = 2, -100
IDS = np.array([[5, 6, 7, EOS, EOS, EOS], [8, 9, 3, 4, 6, EOS]])
REAL = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])


def test_padding_by_value_is_named_and_counted():
    right = np.where(REAL == 1, IDS, NONE)
    assert sl.check_batch(IDS, right, REAL, pad_id=EOS, eos_id=EOS).ok
    by_value = np.where(IDS == EOS, NONE, IDS)
    report = sl.check_batch(IDS, by_value, REAL, pad_id=EOS, eos_id=EOS)
    assert [(f.slug, f.variant, f.certain) for f in report.faults] == [("loss.scope", "by_value", True)], report
    counts = {e["what"]: e["value"] for e in report.evidence}
    assert counts["targets carry loss"] == 6 and counts["targets were declared"] == 8


def test_labels_shifted_twice():
    right = np.where(REAL == 1, IDS, NONE)
    shifted = np.concatenate([right[:, 1:], np.full((2, 1), NONE)], 1)
    report = sl.check_batch(IDS, shifted, REAL, pad_id=EOS, eos_id=EOS)
    assert report.faults[0].slug == "loss.label_shift" and report.faults[0].parameters == {"shift": 2}
    assert sl.check_batch(IDS, shifted, REAL, pad_id=EOS, eos_id=EOS, model_shifts=False).ok


def test_masks_of_pairs():
    segments = np.array([[0, 0, 1, 1, 1, 1]])
    ids, causal = IDS[1:], np.tri(6, dtype=bool)
    same = segments[:, :, None] == segments[:, None, :]
    assert sl.check_batch(ids, attention_mask=causal & same, segment_ids=segments).ok
    report = sl.check_batch(ids, attention_mask=(causal | np.zeros_like(same))[:, None], segment_ids=segments)
    assert [f.slug for f in report.faults] == ["pack.cross_document"]
    with pytest.raises(ValueError, match="additive"):
        sl.check_batch(ids, attention_mask=np.zeros((1, 6, 6)))


def test_an_end_of_text_token_isolates_nothing():
    packed = np.array([[5, 6, EOS, 7, 8, EOS]])
    report = sl.check_batch(packed, eos_id=EOS)
    assert [f.slug for f in report.faults] == ["pack.cross_document"] and "isolates nothing" in report.summary
    assert sl.check_batch(packed, eos_id=EOS, mask="causal").ok
    assert sl.check_batch(packed, position_ids=[[0, 1, 2, 0, 1, 2]], eos_id=EOS).ok


def test_what_does_not_fit():
    for bad in ({"labels": IDS[:1]}, {"position_ids": IDS[:, :3]}, {"mask": "causl"}, {"prompt": "maybe"}):
        with pytest.raises(ValueError):
            sl.check_batch(IDS, **bad)
    with pytest.raises(ValueError, match=r"expected \[rows, tokens\]"):
        sl.check_batch(IDS[0])


def test_ids_that_are_not_whole_are_refused():
    ids = np.array([[5, 6, 7, 8]])
    with pytest.raises(ValueError, match="input_ids holds numbers that are not whole"):
        sl.check_batch(ids + 0.5)
    with pytest.raises(ValueError, match="labels is complex128"):
        sl.check_batch(ids, ids + 0j)
