"""The package against plain numpy that shares no code with it."""
import numpy as np
import pytest

import sightline as sl


def plain(q, k, v, visible, scale=None):
    """Attention by loops over heads; q [Tq, H, d], k [Tk, Hk, d]."""
    group = q.shape[1] // k.shape[1]
    scale = 1 / np.sqrt(q.shape[2]) if scale is None else scale
    out = np.zeros((q.shape[0], q.shape[1], v.shape[2]))
    for h in range(q.shape[1]):
        scores = np.where(visible, q[:, h] @ k[:, h // group].T * scale, -np.inf)
        for i in range(q.shape[0]):
            if visible[i].any():
                weights = np.exp(scores[i] - scores[i].max())
                out[i, h] = weights / weights.sum() @ v[:, h // group]
    return out


def arrays(q_len=9, kv_len=14, heads=(6, 2), dims=(8, 5), seed=0):
    rng = np.random.default_rng(seed)
    make = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    return make(q_len, heads[0], dims[0]), make(kv_len, heads[1], dims[0]), make(kv_len, heads[1], dims[1])


def spec(mask="causal", **more):
    return sl.attention_spec(num_q_heads=6, num_kv_heads=2, qk_head_dim=8, v_head_dim=5, mask=mask, **more)


def causal(q_len, kv_len, window=10**9):
    q, k = np.arange(kv_len - q_len, kv_len)[:, None], np.arange(kv_len)[None]
    return (k <= q) & (q - k < window)


def test_engine_and_oracle_equal_plain_numpy():
    q, k, v = arrays()
    want = plain(q.astype(float), k.astype(float), v.astype(float), causal(9, 14, 4))
    assert np.abs(sl.attention(q, k, v, spec("causal & window(4)")) - want).max() < 2e-6
    out, lse, weights = sl.reference.attention(q, k, v, spec("causal & window(4)"))
    assert np.abs(out - want).max() < 1e-12
    assert np.allclose(weights.sum(-1), 1) and lse.shape == (9, 6)


def test_a_batch_is_its_rows_to_the_bit_and_strides_need_no_copy():
    q, k, v = arrays(q_len=14)
    batch = [np.stack([x, x[::-1]]) for x in (q, k, v)]
    both = sl.attention(*batch, spec())
    assert both.shape == (2, 14, 6, 5)
    assert np.array_equal(both[0], sl.attention(q, k, v, spec()))
    assert np.array_equal(both[1], sl.attention(q[::-1], k[::-1], v[::-1], spec()))


def test_chunks_and_threads_do_not_change_a_bit():
    q, k, v = arrays(q_len=14)
    whole = sl.attention(q, k, v, spec(rope="half_split"))
    pieces = [sl.attention(q[b:e], k[:e], v[:e], spec(rope="half_split"), num_threads=3)
              for b, e in ((0, 5), (5, 6), (6, 14))]
    assert np.array_equal(whole, np.concatenate(pieces))


def test_padding_documents_and_bias():
    q, k, v = arrays(q_len=14)
    valid = np.array([0, 0] + [1] * 12)
    segment = np.array([0] * 7 + [1] * 7)
    visible = causal(14, 14) & (segment[:, None] == segment[None]) & (valid[None] == 1) & (valid[:, None] == 1)
    got = sl.attention(q, k, v, spec("causal & segment"), valid=valid, kv_segment=segment)
    assert np.abs(got - plain(q, k, v, visible)).max() < 2e-6
    bias = np.where(visible, 0, -np.inf)
    assert np.abs(sl.attention(q, k, v, spec("all"), bias=bias) - plain(q, k, v, visible)).max() < 2e-6


def test_the_oracles_gradient_is_the_slope():
    q, k, v = (x.astype(float) for x in arrays())
    d_out = np.random.default_rng(5).standard_normal((9, 6, 5))
    s = spec("causal & window(4)", rope="interleaved", logit_softcap=2.0)
    loss = lambda: (sl.reference.attention(q, k, v, s)[0] * d_out).sum()  # noqa: E731
    grads = sl.reference.attention_backward(q, k, v, d_out, s)
    for x, d in zip((q, k, v), grads):
        x[3, 1, 2] += 1e-5
        up = loss()
        x[3, 1, 2] -= 2e-5
        slope = (up - loss()) / 2e-5
        x[3, 1, 2] += 1e-5
        assert abs(slope - d[3, 1, 2]) < 1e-8


def test_what_does_not_fit_is_a_value_error_with_names():
    q, k, v = arrays()
    with pytest.raises(ValueError, match="num_kv_heads"):
        sl.attention_spec(num_q_heads=8, num_kv_heads=3, qk_head_dim=8)
    with pytest.raises(ValueError, match="column"):
        spec("causal & wimdow(4)")
    with pytest.raises(ValueError, match="q is float64, expected float32"):
        sl.attention(q.astype(float), k, v, spec())
    with pytest.raises(ValueError, match="give q_pos"):
        sl.attention(np.concatenate([q, q]), k, v, spec())
    with pytest.raises(ValueError, match="q_pos has 4 entries, expected 9"):
        sl.attention(q, k, v, spec(), q_pos=range(4))


def test_pictures_and_reasons():
    assert sl.draw("causal & window(4)", q_pos=[3, 4], kv_pos=range(5)) == "1 1 1 1 0\n0 1 1 1 1\n"
    assert "window" in sl.why("causal & window(4)", 1, 0, q_pos=[3, 4], kv_pos=range(5))


def probe(visible_of, seeds=(1, 2), **more):
    """Two observations of plain numpy with some visibility."""
    parts = [arrays(seed=s) for s in seeds]
    q, k, v = (np.stack([p[i] for p in parts]) for i in range(3))
    out = np.stack([plain(*(x.astype(np.float32) for x in p), visible_of, **more) for p in parts]).astype(np.float32)
    return {"q": q, "k": k, "v": v, "out": out}


def test_diagnose_names_what_plain_numpy_did_wrong():
    assert sl.diagnose(spec(), **probe(causal(9, 14))).verdict == "agrees"
    top_left = np.tri(9, 14, dtype=bool)
    report = sl.diagnose(spec(), **probe(top_left))
    assert report.faults[0].slug == "mask.top_left_alignment" and report.faults[0].certain, str(report)
    report = sl.diagnose(spec("causal & window(4)"), **probe(causal(9, 14, 5)))
    assert report.faults[0].slug == "mask.window_off_by_one" and report.faults[0].parameters == {"keys": 1}
    report = sl.diagnose(spec(), **probe(causal(9, 14), scale=0.25))
    assert report.faults[0].slug == "score.scale" and not report.ok
    assert abs(report.faults[0].parameters["factor"] - 0.25 * np.sqrt(8)) < 1e-4, str(report)
