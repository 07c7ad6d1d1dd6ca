"""Rotations against plain numpy."""
import ml_dtypes
import numpy as np
import pytest

import plain
import sightline as sl


def heads(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("pairing", ["half_split", "interleaved"])
def test_pairs_turn_by_position_times_frequency_and_the_rest_passes(pairing):
    spec = sl.rope_spec(rotary_dim=6, pairing=pairing, theta=100.0, cos_sin_magnitude=1.5)
    frequencies = 100.0 ** (-2 * np.arange(3) / 6)
    assert np.allclose(sl.rope_frequencies(spec), frequencies, rtol=1e-14)
    x, pos = heads(5, 2, 8), np.array([0, 3, 4, 100, 7])
    want = plain.rotate(x, pos, frequencies, pairing, 1.5)
    assert np.abs(sl.rope(x, spec, pos) - want).max() < 1e-5
    assert np.abs(sl.rope(x.astype(float), spec, pos) - want).max() < 1e-12
    assert np.array_equal(sl.rope(x, spec, pos)[..., 6:], x[..., 6:])
    both = sl.rope(np.stack([x, x]), spec, np.stack([pos, pos + 1]))
    assert np.array_equal(both[0], sl.rope(x, spec, pos)) and np.array_equal(both[1], sl.rope(x, spec, pos + 1))


def test_the_inverse_undoes_it_and_positions_default_to_rows():
    spec = sl.rope_spec(rotary_dim=8, cos_sin_magnitude=1.25)
    x = heads(5, 2, 8)
    assert np.abs(sl.rope(sl.rope(x, spec), spec, inverse=True) - x).max() < 1e-6
    assert np.array_equal(sl.rope(x, spec), sl.rope(x, spec, np.arange(5)))


def test_linear_scaling_divides_angles_and_lengths_choose_divisors():
    linear = sl.rope_spec(rotary_dim=8, scaling={"kind": "linear", "factor": 4.0})
    assert np.allclose(sl.rope_frequencies(linear) * 4, sl.rope_frequencies(sl.rope_spec(rotary_dim=8)))
    by_length = sl.rope_spec(rotary_dim=4, scaling={"kind": "longrope", "original_context": 10,
                                                    "short_divisors": [1.0, 1.0], "long_divisors": [2.0, 3.0]})
    short, long = sl.rope_frequencies(by_length, 10), sl.rope_frequencies(by_length, 11)
    assert np.allclose(short / long, [2, 3])
    x = heads(5, 2, 4)
    assert not np.array_equal(sl.rope(x, by_length, rope_length=10), sl.rope(x, by_length, rope_length=11))
    spec = sl.attention_spec(num_q_heads=2, qk_head_dim=4, rope=by_length)
    for length in (10, 11):
        turned = sl.rope(x, by_length, rope_length=length)
        want = sl.attention(turned, turned, x, "causal")
        assert np.array_equal(sl.attention(x, x, x, spec, rope_length=length), want)
        assert np.abs(sl.reference.attention(x, x, x, spec, rope_length=length)[0] - want).max() < 1e-6
        cache = sl.KvCache(spec, rope_length=length)
        sequence = cache.add_sequence()
        cache.append(sequence, x, x)
        assert np.array_equal(cache.attention(x, sequence), want)


def test_attention_turns_what_it_is_given_as_rope_does():
    x, v = heads(9, 2, 8), heads(9, 2, 8, seed=1)
    spec = sl.attention_spec(num_q_heads=2, qk_head_dim=8, rope=sl.rope_spec(rotary_dim=8, theta=500.0))
    pos = np.arange(9) * 3
    turned = sl.rope(x, spec, pos)
    got = sl.attention(x, x, v, spec, kv_rope_pos=pos)
    assert np.array_equal(got, sl.attention(turned, turned, v, "causal"))


def test_16_bits_are_rounded_once_and_bad_specs_are_named():
    spec = sl.rope_spec(rotary_dim=8)
    x = heads(5, 2, 8).astype(ml_dtypes.bfloat16)
    assert np.array_equal(sl.rope(x, spec), sl.rope(x.astype(np.float32), spec).astype(x.dtype))
    with pytest.raises(ValueError, match="rotary_dim"):
        sl.rope_spec(rotary_dim=7)
    with pytest.raises(ValueError, match="rotary_dim"):
        sl.rope(heads(5, 2, 6), spec)
    with pytest.raises(ValueError, match="thetta"):
        sl.rope_spec(rotary_dim=8, thetta=3)
    with pytest.raises(ValueError, match="pos"):
        sl.rope(heads(5, 2, 8), spec, [1, 2, 3])
    assert sl.RopeSpec.from_json(spec.to_json()) == spec
