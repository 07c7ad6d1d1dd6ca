"""Which arrays are taken, without a copy or widened, and what comes back."""
import subprocess
import sys
import threading
import time

import ml_dtypes
import numpy as np
import pytest

import plain
import sightline as sl
from sightline._attention import oracle_backward


def arrays(shape_q=(9, 6, 8), shape_k=(14, 2, 8), v_dim=5, seed=0):
    rng = np.random.default_rng(seed)
    make = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    return make(*shape_q), make(*shape_k), make(*shape_k[:-1], v_dim)


class Foreign:
    """An array of another library: DLPack and nothing else."""

    def __init__(self, array):
        self._array = array
        self.shape, self.ndim, self.dtype = array.shape, array.ndim, array.dtype

    def __dlpack__(self, **more):
        return self._array.__dlpack__(**more)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_the_heads_before_tokens_layout_is_read_by_strides():
    q, k, v = (np.stack([x, 2 * x]) for x in arrays())
    want = sl.attention(q, k, v, "causal")
    turned = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for x in (q, k, v)]
    assert not any(x.flags.c_contiguous for x in turned)
    assert np.array_equal(sl.attention(*turned, "causal"), want)
    assert np.array_equal(sl.attention(*(x[:, ::-1][:, ::-1] for x in turned), "causal"), want)


def test_dlpack_and_the_buffer_protocol_are_enough():
    q, k, v = arrays()
    want = sl.attention(q, k, v, "causal")
    assert np.array_equal(sl.attention(Foreign(q), Foreign(k), Foreign(v), "causal"), want)
    assert np.array_equal(sl.attention(memoryview(q), memoryview(k), memoryview(v), "causal"), want)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_16_bit_types_are_widened_exactly_and_the_result_is_rounded_once(dtype):
    q, k, v = (x.astype(dtype) for x in arrays())
    got, lse = sl.attention(q, k, v, "causal", return_lse=True)
    want = sl.attention(*(x.astype(np.float32) for x in (q, k, v)), "causal")
    assert got.dtype == dtype and lse.dtype == np.float32
    assert np.array_equal(got, want.astype(dtype))
    turned = [np.ascontiguousarray(x.transpose(1, 0, 2)).transpose(1, 0, 2) for x in (q, k, v)]
    assert np.array_equal(sl.attention(*turned, "causal"), got)


def test_types_that_would_lose_digits_are_refused_by_name():
    q, k, v = arrays()
    with pytest.raises(ValueError, match="k is float64, expected float32"):
        sl.attention(q, k.astype(float), v, "causal")
    with pytest.raises(ValueError, match="v is int32, expected float32"):
        sl.attention(q, k, v.astype(np.int32), "causal")
    with pytest.raises(ValueError, match="q is uint16"):
        sl.attention(q.astype(np.uint16), k, v, "causal")
    with pytest.raises(ValueError, match=r"q has shape \[9, 48\]"):
        sl.attention(q.reshape(9, 48), k, v, "causal")
    with pytest.raises(ValueError, match="v has 1 sequences of 13 tokens, expected 1 of 14"):
        sl.attention(q, k, v[1:], "causal")


PEAK = """
import resource, sys
import numpy as np
import sightline as sl
q = np.ones((2, 16, 16384, 64), np.float32).transpose(0, 2, 1, 3)  # 128 MiB, heads before tokens
k, v = np.ones((2, 1, 1, 64), np.float32), np.ones((2, 1, 1, 1), np.float32)
kv_pos = [0]
def once(q):
    return sl.attention(q, k, v, "all", q_pos=np.arange(q.shape[1]), kv_pos=kv_pos)
once(q[:, :128])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
once(q)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_queries_of_128_mib_are_not_copied():
    grown = int(subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True).stdout)
    assert grown < 64 * 1024, f"{grown} KiB more at the peak"


def test_other_threads_run_during_a_call():
    q, k, v = arrays((3000, 8, 64), (3000, 8, 64), 64)
    worker = threading.Thread(target=lambda: sl.attention(q, k, v, "all", num_threads=1))
    worker.start()
    turns = 0
    while worker.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 5, turns


def test_calls_from_several_threads_and_after_a_fork_give_the_same_bits():
    q, k, v = arrays((200, 6, 8), (200, 2, 8))
    want = sl.attention(q, k, v, "causal")
    got = [None] * 6

    def call(i):
        got[i] = sl.attention(q, k, v, "causal", num_threads=1 + i % 3)

    workers = [threading.Thread(target=call, args=(i,)) for i in range(6)]
    [w.start() for w in workers]
    [w.join() for w in workers]
    assert all(np.array_equal(g, want) for g in got)
    code = ("import os, numpy as np, sightline as sl\n"
            "q = np.ones((40, 2, 8), np.float32)\n"
            "want = sl.attention(q, q, q, 'causal')\n"
            "child = os.fork()\n"
            "same = np.array_equal(sl.attention(q, q, q, 'causal'), want)\n"
            "if child == 0: os._exit(0 if same else 1)\n"
            "print(os.waitpid(child, 0)[1], same)\n")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "0 True\n", done


@pytest.mark.parametrize("backward,bound", [(sl.attention_backward, 2e-6), (oracle_backward, 1e-8)])
def test_gradients_of_a_batch_and_of_what_was_broadcast(backward, bound):
    q, k, v = (np.stack([x, x[::-1]]).astype(float) for x in arrays((5, 4, 6), (7, 2, 6), 3))
    rng = np.random.default_rng(3)
    bias, d_out, d_lse = (rng.standard_normal(s).astype(np.float32).astype(float)
                          for s in ((4, 1, 7), (2, 5, 4, 3), (2, 5, 4)))
    spec = sl.attention_spec(num_q_heads=4, num_kv_heads=2, qk_head_dim=6, v_head_dim=3, mask="causal & window(3)",
                             rope="half_split", logit_softcap=3.0, sink_logits=[0.1, -1.0, 0.5, 2.0])
    visible = np.subtract.outer(np.arange(2, 7), np.arange(7))
    visible = (visible >= 0) & (visible < 3)

    def loss():
        total = 0
        for b in range(2):
            out, lse, _ = sl.reference.attention(q[b], k[b], v[b], spec, bias=bias, dense=visible)
            total += (out * d_out[b]).sum() + (lse * d_lse[b]).sum()
        return total

    given = (q, k, v, d_out) if backward is oracle_backward else (x.astype(np.float32) for x in (q, k, v, d_out))
    grads = backward(*given, spec, d_lse=d_lse, bias=bias, dense=visible)
    assert grads.d_alibi_slopes is None and grads.d_sink_logits.shape == (4,)
    for x, d in ((q, grads.d_q), (k, grads.d_k), (v, grads.d_v), (bias, grads.d_bias)):
        assert d.shape == x.shape
        at = tuple(s // 2 for s in x.shape)
        kept, ends = x[at], []
        for step in (1e-5, -1e-5):
            x[at] = kept + step
            ends.append(loss())
        x[at] = kept
        assert abs((ends[0] - ends[1]) / 2e-5 - d[at]) < bound
    each = [sl.reference.attention_backward(q[b], k[b], v[b], d_out[b], spec, d_lse=d_lse[b], bias=bias, dense=visible)
            for b in range(2)]
    assert np.allclose(grads.d_sink_logits, each[0].d_sink_logits + each[1].d_sink_logits, atol=bound)


def test_engine_gradients_equal_the_oracles_and_have_one_result():
    q, k, v = (np.stack([x, x[::-1]]) for x in arrays((150, 4, 8), (170, 2, 8), 5))
    rng = np.random.default_rng(4)
    d_out = rng.standard_normal((2, 150, 4, 5)).astype(np.float32)
    by_head = rng.random((1, 4, 150, 170)) < 0.5
    for given in ({}, {"dense": by_head}, {"bias": rng.standard_normal((2, 4, 150, 170)).astype(np.float32)},
                  {"bias": rng.standard_normal((4, 150, 170)).astype(np.float32), "dense": by_head}):
        got = sl.attention_backward(q, k, v, d_out, "causal & window(60)", num_threads=1, **given)
        out, lse = sl.attention(q, k, v, "causal & window(60)", return_lse=True, **given)
        again = sl.attention_backward(q, k, v, d_out, "causal & window(60)", out=out, lse=lse, num_threads=3, **given)
        want = oracle_backward(q, k, v, d_out, "causal & window(60)", **given)
        for a, b, w in zip(got, again, want):
            assert (a is None) == (w is None)
            if w is not None:
                assert a.dtype == np.float32 and a.shape == w.shape and np.array_equal(a, b)
                assert np.abs(a - w).max() < 3e-6 * max(1, np.abs(w).max()), list(given)
    with pytest.raises(ValueError, match="d_out has 2 sequences of 149 tokens, expected 2 of 150"):
        sl.attention_backward(q, k, v, d_out[:, 1:], "causal")


def test_a_matrix_and_a_bias_mean_what_they_say():
    q, k, v = (np.stack([x, 2 * x]) for x in arrays())
    rng = np.random.default_rng(1)
    dense = rng.random((2, 1, 9, 14)) < 0.5
    by_head = rng.random((6, 9, 14)) < 0.5
    bias = rng.standard_normal((1, 6, 1, 14))
    causal = np.tri(9, 14, 5, dtype=bool)
    cases = [("causal", {"dense": dense}, causal & dense, 0.0),
             ("causal | dense", {"dense": dense}, causal | dense, 0.0),
             ("causal", {"dense": by_head[None]}, causal & by_head, 0.0),
             ("causal", {"bias": bias}, causal, bias),
             ("causal", {"bias": bias, "dense": by_head[None]}, causal & by_head, bias)]
    for mask, given, visible, added in cases:
        want = plain.attention(q, k, v, visible, bias=added)[0]
        assert np.abs(sl.attention(q, k, v, mask, **given) - want).max() < 2e-6, (mask, list(given))
        heads_first = [x.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3) for x in (q, k, v)]
        assert np.abs(sl.attention(*heads_first, mask, **given) - want).max() < 2e-6, (mask, list(given))
    with pytest.raises(ValueError, match="matrix for each head"):
        sl.attention(q, k, v, "causal | dense", dense=by_head[None])
    with pytest.raises(ValueError, match=r"dense has shape \[9, 13\], which does not broadcast"):
        sl.attention(q, k, v, "causal", dense=dense[0, 0, :, :13])
    with pytest.raises(ValueError, match="dense is float32, expected bool"):
        sl.attention(q, k, v, "causal", dense=dense.astype(np.float32))
    with pytest.raises(ValueError, match="dense"):
        sl.attention(q, k, v, "causal & dense")


@pytest.mark.parametrize("tokens, words", [
    ({"valid": [1]}, "valid has 1 entries, expected 14"),
    ({"valid": [2] * 14}, "entries other than 0"),
    ({"valid": np.where(np.arange(14) < 3, -np.inf, 0)}, "not whole"),
    ({"valid": np.where(np.arange(14) < 3, -1e9, 0)}, "entries other than 0"),
    ({"q_pos": np.arange(9) + 0.5}, "q_pos holds numbers that are not whole"),
    ({"q_pos": [3]}, "q_pos has 1 entries, expected 9"),
    ({"kv_segment": [None] * 14}, "kv_segment is object"),
])
def test_tokens_that_would_be_bent_to_fit_are_refused(tokens, words):
    with pytest.raises(ValueError, match=words):
        sl.attention(*arrays(), "causal", **tokens)
    assert sl.attention(*arrays(), "causal", valid=np.ones(14), q_pos=np.arange(9.0)).shape == (9, 6, 5)


def test_nothing_is_an_input_too():
    q, k, v = arrays()
    assert sl.attention(q[:0], k, v, "causal").shape == (0, 6, 5)
    assert sl.attention(q[:0], k[:0], v[:0], "causal").shape == (0, 6, 5)
    assert not sl.attention(q, k[:0], v[:0], "causal", q_pos=range(9)).any()
    with pytest.raises(ValueError, match="no sequences"):
        sl.attention(q[None][:0], k[None][:0], v[None][:0], "causal")
