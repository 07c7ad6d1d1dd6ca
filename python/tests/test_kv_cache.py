"""The cache against the same keys in one piece, to the bit."""
import ml_dtypes
import numpy as np
import pytest

import sightline as sl


def spec(mask="causal", **more):
    more = {"rope": "half_split", **more}
    return sl.attention_spec(num_q_heads=4, num_kv_heads=2, qk_head_dim=8, v_head_dim=5, mask=mask, **more)


def arrays(length=40, seed=0):
    rng = np.random.default_rng(seed)
    make = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    return make(length, 4, 8), make(length, 2, 8), make(length, 2, 5)


def filled(cache, k, v, pieces=(0, 7, 8, 40)):
    sequence = cache.add_sequence()
    for begin, end in zip(pieces, pieces[1:]):
        cache.append(sequence, k[begin:end], v[begin:end])
    return sequence


def test_a_cache_filled_in_pieces_gives_the_bits_of_one_call():
    q, k, v = arrays()
    for mask in ("causal", "causal & window(9)"):
        cache = sl.KvCache(spec(mask), page_size=16, poison=True)
        sequence, got = cache.add_sequence(), []
        for begin, end in ((0, 7), (7, 8), (8, 40)):
            cache.append(sequence, k[begin:end], v[begin:end])
            got.append(cache.attention(q[begin:end], sequence))
        assert np.array_equal(np.concatenate(got), sl.attention(q, k, v, spec(mask)))
        assert cache.length(sequence) == cache.num_valid(sequence) == 40


def test_bf16_storage_is_attention_on_rounded_keys_and_takes_half_the_bytes():
    q, k, v = arrays()
    by_type = {t: sl.KvCache(spec(rope="none"), key_type=t, value_type=t) for t in ("f32", "bf16")}
    got = {t: c.attention(q, filled(c, k, v)) for t, c in by_type.items()}
    rounded = [x.astype(ml_dtypes.bfloat16).astype(np.float32) for x in (k, v)]
    assert np.array_equal(got["bf16"], sl.attention(q, *rounded, spec(rope="none")))
    assert not np.array_equal(got["bf16"], got["f32"])
    used = {t: c.stats["bytes_used"] for t, c in by_type.items()}
    assert used == {"f32": 40 * 2 * (8 + 5) * 4, "bf16": 40 * 2 * (8 + 5) * 2}


def test_forks_share_pages_and_go_their_own_ways():
    q, k, v = arrays()
    cache = sl.KvCache(spec(), page_size=16)
    first = filled(cache, k, v, (0, 20))
    pages = cache.stats["num_pages_allocated"]
    second = cache.fork(first)
    assert cache.stats["num_pages_allocated"] == pages
    cache.append(first, k[20:], v[20:])
    cache.append(second, k[20:] * 2, v[20:])
    other = np.concatenate([k[:20], k[20:] * 2])
    both = cache.attention(np.stack([q[-3:], q[-3:]]), [first, second])
    assert np.array_equal(both[0], sl.attention(q[-3:], k, v, spec()))
    assert np.array_equal(both[1], sl.attention(q[-3:], other, v, spec()))
    cache.remove_sequence(first)
    with pytest.raises(ValueError, match="sequence"):
        cache.length(first)


def test_truncate_takes_back_and_evict_hides():
    q, k, v = arrays()
    cache = sl.KvCache(spec(), page_size=16, poison=True)
    sequence = filled(cache, k, v)
    cache.truncate(sequence, 30)
    assert np.array_equal(cache.attention(q[25:30], sequence), sl.attention(q[25:30], k[:30], v[:30], spec()))
    cache.evict(sequence, 4, 20)
    assert cache.num_valid(sequence) == 14 and cache.length(sequence) == 30
    kept = np.r_[0:4, 20:30]
    want = sl.reference.attention(q[25:30], k[kept], v[kept], spec(), kv_pos=kept)[0]
    assert np.abs(cache.attention(q[25:30], sequence) - want).max() < 2e-6
    assert cache.tokens(sequence)["valid"].sum() == 14


def test_a_segment_starts_where_it_started_also_when_its_first_token_is_gone():
    q, k, v = arrays()
    declared = spec("causal & chunk(8)")
    cache = sl.KvCache(declared)
    sequence = cache.add_sequence()
    cache.append(sequence, k[:9], v[:9], pos=range(3, 12))
    cache.evict(sequence, 0, 2)
    cache.append(sequence, k[9:20], v[9:20])
    assert list(cache.tokens(sequence)["segment_start"]) == [3] * 20
    want = sl.attention(q[:20], k[:20], v[:20], declared, kv_pos=range(3, 23))
    assert np.array_equal(cache.attention(q[15:20], sequence), want[15:])
    assert np.array_equal(cache.attention(q[15:20], sequence, q_pos=range(18, 23)), want[15:])


def test_shift_moves_positions_and_turns_keys():
    q, k, v = arrays()
    cache = sl.KvCache(spec("causal & window(30)"))
    sequence = filled(cache, k, v, (0, 20))
    cache.shift(sequence, 0, 20, 5)
    assert list(cache.tokens(sequence)["pos"]) == list(range(5, 25))
    got = cache.attention(q[:4], sequence, q_pos=range(21, 25))
    want = sl.reference.attention(q[:4], k[:20], v[:20], spec("causal & window(30)"), kv_pos=range(5, 25),
                                  q_pos=range(21, 25))[0]
    assert np.abs(got - want).max() < 2e-6
    cache.append(sequence, k[20:22], v[20:22])
    assert list(cache.tokens(sequence, 20)["pos"]) == [25, 26]


def test_layers_padding_and_documents():
    q, k, v = arrays()
    layers = [spec("causal & segment"), spec("causal", rope="none")]
    cache = sl.KvCache(layers)
    sequence = cache.add_sequence()
    valid = np.r_[np.zeros(3, bool), np.ones(37, bool)]
    segment = np.r_[np.zeros(20, int), np.ones(20, int)]
    cache.append(sequence, [k, k], [v, v], valid=valid, segment=segment)
    assert cache.length(sequence) == 37
    for layer, declared in enumerate(layers):
        want = sl.attention(q, k, v, declared, valid=valid, kv_segment=segment)[-9:]
        assert np.array_equal(cache.attention(q[-9:], sequence, layer=layer), want)
    cache.append(sequence, num_tokens=1)
    assert list(cache.tokens(sequence, 36)["segment"]) == [1, 1]
    cache.write(sequence, 0, k[:1], v[:1])
    with pytest.raises(ValueError, match="not written|written"):
        cache.append(sequence, num_tokens=1)


def test_a_matrix_and_a_bias_by_ordinal():
    q, k, v = arrays()
    dense = np.random.default_rng(2).random((5, 40)) < 0.6
    bias = np.random.default_rng(3).standard_normal((4, 5, 40)).astype(np.float32)
    cache = sl.KvCache(spec("causal & dense"), page_size=16)
    sequence = filled(cache, k, v)
    got = cache.attention(q[-5:], sequence, dense=dense, bias=bias)
    assert np.array_equal(got, sl.attention(q[-5:], k, v, spec("causal & dense"), dense=dense, bias=bias))
    shorter = filled(cache, k, v, (0, 23))
    both = cache.attention(np.stack([q[-5:], q[18:23]]), [sequence, shorter], dense=dense, bias=np.stack([bias, -bias]))
    assert np.array_equal(both[0], got)
    want = sl.attention(q[18:23], k[:23], v[:23], spec("causal & dense"), dense=dense[:, :23], bias=-bias[..., :23])
    assert np.array_equal(both[1], want)
    plain_cache = sl.KvCache(spec())
    with pytest.raises(ValueError, match="no rule dense"):
        plain_cache.attention(q[-5:], filled(plain_cache, k, v), dense=dense)


def test_what_fails_is_named_and_changes_nothing():
    q, k, v = arrays()
    cache = sl.KvCache(spec(), page_size=16, max_pages=2)
    sequence = filled(cache, k, v, (0, 20))
    before = cache.attention(q[:4], sequence), cache.stats
    for call, text in ((lambda: cache.append(sequence, k, v), "pages"),
                       (lambda: cache.append(sequence, k[:3], v[:2]), r"values \[2, 2, 5\], expected \[3, 2, 5\]"),
                       (lambda: cache.append(sequence, k[:3].astype(float), v[:3]), "keys is float64"),
                       (lambda: cache.evict(sequence, 5, 30), "evict"),
                       (lambda: cache.truncate(sequence, 21), "truncate"),
                       (lambda: cache.attention(q, sequence), "give q_pos"),
                       (lambda: cache.attention(q[:4], sequence, layer=1), "layer is 1"),
                       (lambda: cache.attention(q[:4], sequence, kv_pos=[1]), "of keys"),
                       (lambda: cache.attention(q[:4, :3], sequence), "shape"),
                       (lambda: sl.KvCache(spec(), page_size=10), "page_size"),
                       (lambda: sl.KvCache(spec(), key_type="f16"), "key_type is 'f16'"),
                       (lambda: sl.KvCache([]), "no layer")):
        with pytest.raises(ValueError, match=text):
            call()
    assert np.array_equal(cache.attention(q[:4], sequence), before[0])
    held = {name: size for name, size in cache.stats.items() if name != "bytes_metadata"}  # grows with capacity
    assert held.items() <= before[1].items()


def test_appending_nothing_changes_nothing():
    spec = sl.attention_spec(num_q_heads=2, qk_head_dim=4)
    cache = sl.KvCache(spec)
    chat = cache.add_sequence()
    rows = np.ones((3, 2, 4), np.float32)
    cache.append(chat, rows[:0], rows[:0])
    cache.append(chat, rows, rows)
    cache.append(chat, rows[:0], rows[:0])
    assert cache.length(chat) == 3
