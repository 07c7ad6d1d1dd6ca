"""Every attribute and input of ONNX Attention (opset 23 and 24) said in Sightline's words, against plain numpy.

What ONNX calls alignment (is_causal with a past, with nonpad_kv_seqlen, top-left or bottom-right) is here a choice of
positions. Three things are ours: a query that sees nothing gives 0 (ONNX: NaN), softcap comes before the mask (with
ONNX's order it would make hidden keys visible again), and sums are f32 whatever softmax_precision says.
"""
import itertools

import numpy as np
import pytest

import plain
import sightline as sl

BATCH, Q_LEN, NEW, PAST, DIM, V_DIM = 2, 5, 7, 4, 8, 6


def by_plain(Q, K, V, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, *, causal_offset=None,
             scale=None, softcap=0.0):
    """(Y, qk by qk_matmul_output_mode 0, 1, 2, 3); arrays [batch, heads, tokens, dim]."""
    if past_key is not None:
        K, V = np.concatenate([past_key, K], 2), np.concatenate([past_value, V], 2)
    total = K.shape[2]
    visible, added = np.ones((BATCH, 1, Q.shape[2], total), bool), 0.0
    if causal_offset is not None:
        offset = np.broadcast_to(causal_offset, BATCH)[:, None, None, None]
        visible = visible & (np.arange(total) <= np.arange(Q.shape[2])[:, None] + offset)
    if nonpad_kv_seqlen is not None:
        visible = visible & (np.arange(total) < nonpad_kv_seqlen[:, None, None, None])
    if attn_mask is not None and attn_mask.dtype == bool:
        visible = visible & attn_mask
    elif attn_mask is not None:
        added = attn_mask.astype(float)
    tokens_first = [np.swapaxes(x, 1, 2) for x in (Q, K, V)]
    qk = plain.attention(*tokens_first, True, scale=scale)[2]
    masked = plain.attention(*tokens_first, visible, scale=scale, bias=added)[2]
    Y, weights, capped = plain.attention(*tokens_first, visible, scale=scale, softcap=softcap, bias=added)
    return np.swapaxes(Y, 1, 2), (qk, masked, capped, weights)


def by_sightline(Q, K, V, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, *,
                 causal_offset=None, scale=None, softcap=0.0, mode=None):
    """The same through the package: Y, or the scores of one mode."""
    if past_key is not None:
        K, V = np.concatenate([past_key, K], 2), np.concatenate([past_value, V], 2)
    total = K.shape[2]
    given = {"kv_pos": np.tile(np.arange(total), BATCH)}
    offset = np.broadcast_to(0 if causal_offset is None else causal_offset, BATCH)
    given["q_pos"] = (np.arange(Q.shape[2]) + offset[:, None]).reshape(-1)
    if nonpad_kv_seqlen is not None:
        given["valid"] = (np.arange(total) < nonpad_kv_seqlen[:, None]).reshape(-1)
    if attn_mask is not None:
        given["dense" if attn_mask.dtype == bool else "bias"] = attn_mask
    fields = {"num_q_heads": Q.shape[1], "num_kv_heads": K.shape[1], "qk_head_dim": DIM, "v_head_dim": V.shape[-1],
              "mask": "all" if causal_offset is None else "causal", "softmax_scale": scale, "logit_softcap": softcap}
    q, k, v = (np.swapaxes(x, 1, 2) for x in (Q, K, V))
    if mode is None:
        return np.swapaxes(sl.attention(q, k, v, sl.attention_spec(**fields), **given), 1, 2)
    if mode < 2:
        fields["logit_softcap"] = 0.0
    if mode == 0:
        fields["mask"] = "all"
        given = {name: x for name, x in given.items() if name.endswith("pos")}
    spec = sl.attention_spec(**fields)
    of = sl.reference.scores if mode < 3 else lambda *a, **more: sl.reference.attention(*a, **more)[2]
    return np.stack([of(q[b], k[b], v[b], spec, **{name: row_of(x, b) for name, x in given.items()})
                     for b in range(BATCH)])


def row_of(x, b):
    """One sequence of a flat column, or of an array that broadcasts to [batch, heads, q_len, kv_len]."""
    if x.ndim == 1:
        return x.reshape(BATCH, -1)[b]
    if x.ndim < 4:
        return x
    return x[b if x.shape[0] > 1 else 0][None] if x.dtype != bool else x[b if x.shape[0] > 1 else 0, :1][None]


def make(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def arrays(q_heads, kv_heads, past):
    new = [make((BATCH, q_heads, Q_LEN, DIM), 1), make((BATCH, kv_heads, NEW, DIM), 2),
           make((BATCH, kv_heads, NEW, V_DIM), 3)]
    if not past:
        return new, {}
    return new, {"past_key": make((BATCH, kv_heads, PAST, DIM), 4), "past_value": make((BATCH, kv_heads, PAST, V_DIM), 5)}


HEADS = [(4, 4), (6, 2), (3, 1)]
MASKS = ["none", "bool 2d", "bool 4d", "bool heads", "float 2d", "float 4d", "float -inf", "short"]


def mask_array(kind, q_heads, total):
    rng = np.random.default_rng(6)
    shape = {"bool 2d": (Q_LEN, total), "bool 4d": (BATCH, 1, Q_LEN, total), "bool heads": (1, q_heads, Q_LEN, total),
             "float 2d": (Q_LEN, total), "float 4d": (BATCH, q_heads, 1, total), "float -inf": (Q_LEN, total),
             "short": (Q_LEN, total - 2)}.get(kind)
    if kind == "none":
        return None
    if kind.startswith("bool"):
        return rng.random(shape) < 0.7
    if kind == "short":  # opset 24: what is missing at the end is minus infinity
        return np.pad(rng.random(shape) < 0.7, ((0, 0), (0, 2)))
    values = rng.standard_normal(shape).astype(np.float32)
    return np.where(rng.random(shape) < 0.3, np.float32(-np.inf), values) if kind == "float -inf" else values


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("q_heads,kv_heads", HEADS)
def test_each_attribute_in_turn(q_heads, kv_heads, mask):
    tried = 0
    for past, causal, scale, softcap in itertools.product((False, True), (False, True), (None, 0.3), (0.0, 1.5)):
        new, more = arrays(q_heads, kv_heads, past)
        more["attn_mask"] = mask_array(mask, q_heads, NEW + past * PAST)
        more |= {"causal_offset": (PAST if past else 0) if causal else None, "scale": scale, "softcap": softcap}
        want, _ = by_plain(*new, **more)
        assert np.abs(by_sightline(*new, **more) - want).max() < 3e-6, (past, causal, scale, softcap)
        tried += 1
    assert tried == 16


@pytest.mark.parametrize("alignment", ["top-left", "bottom-right"])
def test_nonpad_kv_seqlen_and_either_alignment(alignment):
    new, more = arrays(6, 2, False)
    nonpad = np.array([7, 5])
    offset = 0 if alignment == "top-left" else nonpad - Q_LEN
    more |= {"nonpad_kv_seqlen": nonpad, "causal_offset": offset, "attn_mask": mask_array("bool 2d", 6, NEW)}
    assert np.abs(by_sightline(*new, **more) - by_plain(*new, **more)[0]).max() < 3e-6


@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize("mask", ["none", "bool 4d", "float 2d"])
def test_each_qk_matmul_output_mode(mode, mask):
    new, more = arrays(6, 2, True)
    more |= {"attn_mask": mask_array(mask, 6, NEW + PAST), "causal_offset": PAST, "softcap": 1.5}
    want = by_plain(*new, **more)[1][mode]
    got = by_sightline(*new, **more, mode=mode)
    hidden = np.isneginf(want)
    assert np.array_equal(hidden, np.isneginf(got))
    assert np.abs(np.where(hidden, 0, got - np.where(hidden, 0, want))).max() < 1e-12


def test_a_past_in_a_cache_gives_the_bits_of_a_past_in_front():
    new, more = arrays(6, 2, True)
    q, k, v = (np.swapaxes(x, 1, 2) for x in new)
    past_k, past_v = (np.swapaxes(more[name], 1, 2) for name in ("past_key", "past_value"))
    spec = sl.attention_spec(num_q_heads=6, num_kv_heads=2, qk_head_dim=DIM, v_head_dim=V_DIM, logit_softcap=1.5)
    cache = sl.KvCache(spec, page_size=16)
    ids = [cache.add_sequence() for _ in range(BATCH)]
    for b, sequence in enumerate(ids):
        cache.append(sequence, past_k[b], past_v[b])
        cache.append(sequence, k[b], v[b])
    whole = sl.attention(q, np.concatenate([past_k, k], 1), np.concatenate([past_v, v], 1), spec)
    assert np.array_equal(cache.attention(q, ids), whole)


def test_three_axes_are_heads_side_by_side():
    q, k, v = (np.swapaxes(x, 1, 2) for x in arrays(6, 2, False)[0])
    flat = [x.reshape(BATCH, x.shape[1], -1) for x in (q, k, v)]
    again = [x.reshape(BATCH, x.shape[1], heads, -1) for x, heads in zip(flat, (6, 2, 2))]
    assert np.array_equal(sl.attention(*again, "all"), sl.attention(q, k, v, "all"))


def test_a_query_that_sees_nothing_gives_zero():
    new, _ = arrays(6, 2, False)
    mask = np.ones((Q_LEN, NEW), bool)
    mask[3] = False
    got = by_sightline(*new, attn_mask=mask)
    assert (got[:, :, 3] == 0).all() and np.isfinite(got).all() and (got[:, :, 2] != 0).all()
