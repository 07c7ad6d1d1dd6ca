"""check_gradient: whether the test of differences is wrong, or the gradient."""
import numpy as np
import pytest

import sightline as sl


def attention(q, k, v):
    """[tokens, dim] in the type of its inputs."""
    scores = q @ k.T / np.asarray(np.sqrt(q.shape[-1]), q.dtype)
    scores = np.where(np.tri(len(q), len(k), dtype=bool), scores, np.asarray(-np.inf, q.dtype))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def gradient(q, k, v, d_out, delta=True, keys=True):
    scores = q @ k.T / np.asarray(np.sqrt(q.shape[-1]), q.dtype)
    scores = np.where(np.tri(len(q), len(k), dtype=bool), scores, np.asarray(-np.inf, q.dtype))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    d_weights = d_out @ v.T
    term = (d_weights * weights).sum(-1, keepdims=True) if delta else 0
    d_scores = weights * (d_weights - term) / np.asarray(np.sqrt(q.shape[-1]), q.dtype)
    return d_scores @ k, d_scores.T @ q * (1 if keys else 0), weights.T @ d_out


def inputs(dtype):
    rng = np.random.default_rng(3)
    return [rng.standard_normal((6, 8)).astype(dtype) for _ in range(3)]


def checked(dtype, gradient=gradient, **options):
    return sl.check_gradient(attention, *inputs(dtype), gradient=gradient, names="qkv", **options)


def test_a_right_gradient_under_a_right_test_agrees():
    report = checked(np.float64)
    assert report.verdict == "agrees" and report.ok, str(report)
    assert checked(np.float32, eps=1e-2, tolerance=1e-2).verdict == "agrees"


@pytest.mark.parametrize("dtype, options, variant", [
    (np.float32, {}, "quantised"), (np.float16, {"eps": 1e-3}, "quantised"),
    (np.float32, {"eps": 1e-4, "tolerance": 1e-4}, "quantised"),
    (np.float64, {"eps": 0.5}, "wide_step"), (np.float32, {"eps": 0.3}, "wide_step")])
def test_the_test_is_named_where_the_gradient_is_right(dtype, options, variant):
    report = checked(dtype, **options)
    assert [f.slug for f in report.faults] == ["grad.check_misuse"], str(report)
    assert report.faults[0].variant == variant and report.faults[0].certain, str(report)
    assert report.faults[0].parameters["step"] == options.get("eps", 1e-6)
    assert not report.ok and "the gradient is right" in report.summary


def test_an_overflow_in_the_narrow_type_is_a_fault_of_the_test():
    def steep(x):
        return np.log1p(np.exp(x)).sum(keepdims=True)

    with np.errstate(over="ignore", invalid="ignore"):
        report = sl.check_gradient(steep, np.full(3, 95, np.float32), eps=1e-2,
                                   gradient=lambda x, d_out: d_out / (1 + np.exp(-x)))
    assert report.faults[0].slug == "grad.check_misuse" and report.faults[0].variant == "narrow_type", str(report)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_wrong_gradient_is_no_fault_of_the_test(dtype):
    report = checked(dtype, lambda *args: gradient(*args, delta=False))
    assert report.verdict == "unknown" and not report.faults, str(report)
    assert report.first_difference["tensor"] == "d_q"
    report = checked(dtype, lambda *args: gradient(*args, keys=False))
    assert [f.slug for f in report.faults] == ["grad.severed"], str(report)


def test_what_cannot_be_tested_is_refused():
    with pytest.raises(ValueError, match="need gradient="):
        sl.check_gradient(attention, *inputs(np.float32))
    with pytest.raises(ValueError, match="answers in f32"):
        sl.check_gradient(lambda *x: attention(*(y.astype(np.float32) for y in x)), *inputs(np.float32),
                          gradient=gradient)
    with pytest.raises(ValueError, match="needs the inputs"):
        sl.check_gradient(attention)
