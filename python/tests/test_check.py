"""sl.check drives callables of other people; the plain numpy here shares no code with the package."""
import time

import numpy as np
import pytest

import plain
import sightline as sl

SIZES = {"num_q_heads": 6, "num_kv_heads": 2, "head_dim": 8, "v_head_dim": 5}


def causal(q, k):
    first = k.shape[0] - q.shape[0]
    return np.arange(k.shape[0])[None] <= np.arange(q.shape[0])[:, None] + first


def right(q, k, v):
    return plain.attention(q, k, v, causal(q, k))[0].astype(q.dtype)


def top_left(q, k, v):
    return plain.attention(q, k, v, np.tri(q.shape[0], k.shape[0], dtype=bool))[0].astype(q.dtype)


def masked(q, k, v, mask):
    return plain.attention(q, k, v, mask)[0].astype(q.dtype)


def test_a_right_function_agrees():
    report = sl.check(right, **SIZES)
    assert report.ok and report.verdict == "agrees", report
    assert report.visible_set["declared"] == report.visible_set["observed"]
    assert any("not told positions" in spot or "gradients" in spot for spot in report.blind_spots)


def test_a_top_left_triangle_is_named_and_torch_documents_it():
    report = sl.check(top_left, **SIZES)
    assert report.verdict == "fault" and report.faults[0].slug == "mask.top_left_alignment", report
    assert report.faults[0].certain and "tril" in report.faults[0].idiom
    assert sl.check(top_left, **SIZES, follows="torch").verdict == "convention"
    with pytest.raises(ValueError, match="only of torch"):
        sl.check(top_left, **SIZES, follows="tf")


def test_layouts_types_and_the_mask_as_an_argument():
    def heads_first(q, k, v, mask):
        turned = [np.moveaxis(x[0], 0, 1) for x in (q, k, v)]
        return np.moveaxis(masked(*turned, mask), 1, 0)[None]

    for mask in ("causal & window(5)", "causal & segment"):
        assert sl.check(heads_first, mask, layout="bhtd", **SIZES).verdict == "agrees"
    assert sl.check(masked, "causal & segment", dtype="f16", **SIZES).verdict == "rounding"
    ignoring = sl.check(lambda q, k, v, mask: right(q, k, v), "causal & segment", **SIZES)
    assert {fault.slug for fault in ignoring.faults} == {"pack.cross_document", "mask.padding_ignored"}, ignoring


def test_who_is_told_where_queries_stand_is_not_asked_where_keys_do():
    def by_query_positions(q, k, v, q_pos):
        visible = np.arange(k.shape[0])[None] <= q_pos[:, None]
        return plain.attention(q, k, v, visible)[0].astype(q.dtype)

    def by_positions(q, k, v, q_pos, kv_pos):
        return plain.attention(q, k, v, kv_pos[None] <= q_pos[:, None])[0].astype(q.dtype)

    for fn in (by_query_positions, by_positions):
        report = sl.check(fn, **SIZES)
        assert report.verdict == "agrees", report
    assert sl.check(by_positions, "causal & window(4)", **SIZES).faults[0].slug == "mask.window_scope"


def test_lse_and_a_dict_of_answers():
    def with_lse(q, k, v):
        out, _, scores = plain.attention(q, k, v, causal(q, k))
        lse = np.log(np.exp(scores).sum(-1))
        return {"out": out, "lse": lse.T if swapped else lse}

    swapped = True
    assert sl.check(with_lse, **SIZES).verdict == "agrees"
    swapped = False  # [heads, tokens] where [tokens, heads] is meant
    assert not sl.check(with_lse, **SIZES).ok


def test_rotation_with_positions():
    frequencies = 10000.0 ** (-np.arange(0, 8, 2) / 8)

    def rotating(q, k, v, q_rope_pos, kv_rope_pos):
        turn = lambda x, pos: plain.rotate(x, pos, frequencies, "half_split")  # noqa: E731
        return right(turn(q, q_rope_pos), turn(k, kv_rope_pos), v)

    assert sl.check(rotating, rope="half_split", **SIZES).verdict == "agrees"
    wrong = sl.check(lambda q, k, v, q_rope_pos, kv_rope_pos: rotating(q, k, v, q_rope_pos, kv_rope_pos + 1),
                     rope="half_split", **SIZES)
    assert not wrong.ok


def rotated_rows(q, k, v, q_rope_pos, kv_rope_pos):
    """Causal rows [batch, heads, tokens, dim], each at positions of its own."""
    frequencies = 10000.0 ** (-np.arange(0, 8, 2) / 8)
    out = []
    for r in range(len(q)):
        turned = [np.moveaxis(x[r], 0, 1) for x in (q, k, v)]
        turned[0] = plain.rotate(turned[0], q_rope_pos[r], frequencies, "half_split")
        turned[1] = plain.rotate(turned[1], kv_rope_pos[r], frequencies, "half_split")
        out.append(np.moveaxis(right(*turned), 1, 0))
    return np.stack(out)


def test_rows_of_a_batch_answer_what_they_answer_alone():
    options = {**SIZES, "layout": "bhtd", "rope": "half_split", "batch": True}
    right_rows = sl.check(rotated_rows, **options)
    assert right_rows.verdict == "agrees" and "holds: a row of a batch = the row alone" in str(right_rows), right_rows

    def first_positions(q, k, v, q_rope_pos, kv_rope_pos):
        return rotated_rows(q, k, v, np.broadcast_to(q_rope_pos[:1], q_rope_pos.shape), kv_rope_pos)

    report = sl.check(first_positions, **options)
    assert [f.slug for f in report.faults] == ["rope.batch_row"] and report.faults[0].certain, report

    def next_keys(q, k, v, q_rope_pos, kv_rope_pos):
        return rotated_rows(q, np.roll(k, 1, axis=0), v, q_rope_pos, kv_rope_pos)

    report = sl.check(next_keys, **options)
    assert [f.slug for f in report.faults] == ["batch.kernel_indexing"], report
    assert "with the keys of row 2" in report.summary, report
    with pytest.raises(ValueError, match="a layout with a batch"):
        sl.check(right, batch=True, **SIZES)


def test_a_cache_of_query_heads_shows_in_its_bytes():
    fitting = sl.check(right, cache_bytes_per_token=2 * (8 + 5) * 4, **SIZES)
    assert fitting.verdict == "agrees", fitting
    report = sl.check(right, cache_bytes_per_token=6 * (8 + 5) * 4, **SIZES)
    assert [f.slug for f in report.faults] == ["cache.gqa_expansion"] and report.faults[0].certain, report
    assert report.faults[0].parameters["times"] == 3


@pytest.mark.parametrize("what, words", [
    (lambda q, k, v: 1 / 0, "ZeroDivisionError: division by zero"),
    (lambda q, k, v: right(q, k, v)[:, :1], "expected 33 tokens, 6 heads of 5"),
    (lambda q, k, v: np.full_like(right(q, k, v), np.nan), "NaN"),
    (lambda q, k, v: right(q, k, v) + np.random.rand(), "answered otherwise"),
    (lambda q, k, v: time.sleep(5), "it hangs"),
    (lambda q, k, v: "text", "ValueError"),
])
def test_what_cannot_answer_is_broken(what, words):
    report = sl.check(what, timeout=0.3, **SIZES)
    assert report.verdict == "broken" and words in report.summary, report


def test_a_keyboard_interrupt_is_no_verdict():
    def interrupted(q, k, v):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sl.check(interrupted, **SIZES)


def test_the_page_holds_the_call_that_gives_it_again():
    report = sl.check(top_left, seed=7, **SIZES)
    assert report.html.startswith("<!DOCTYPE html>") and "sl.check(top_left, spec, layout='thd'" in report.html
    assert "seed=7" in report.html and report.ranked[0]["what"] == "mask.top_left_alignment"
    assert max(report.row_errors) > 1 > min(report.row_errors)


def test_assert_attention_says_why():
    sl.assert_attention(right, **SIZES)
    with pytest.raises(AssertionError, match="fault: mask.top_left_alignment"):
        sl.assert_attention(top_left, "causal", **SIZES)


def test_options_that_do_not_fit():
    for options in ({"layout": "dht"}, {"dtype": "f8"}, {"framework": "jax"}, {"num_tokens": 3}):
        with pytest.raises(ValueError):
            sl.check(right, **SIZES, **options)


def test_what_cannot_be_asked_is_an_error_and_no_verdict():
    with pytest.raises(TypeError, match="check asks a function, got int"):
        sl.check(3, **SIZES)
    for budget in (-1, float("nan")):
        with pytest.raises(ValueError, match="budget"):
            sl.check(right, budget=budget, **SIZES)
    report = sl.check(lambda q, k, v: right(q, k, v) + 0j, **SIZES)
    assert report.verdict == "broken" and "expected real numbers" in report.summary


def test_what_an_exception_says_stays_on_one_line():
    def red(q, k, v):
        raise RuntimeError("\x1b[31mred\nagain" + "x" * 5000)

    summary = sl.check(red, **SIZES).summary
    assert "\\x1b[31mred\\x0aagain" in summary and len(summary) < 600
