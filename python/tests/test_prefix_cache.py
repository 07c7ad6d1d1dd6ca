"""check_prefix_cache on a small model with a prefix cache of blocks, right and wrong in the ways of reports."""
import contextlib

import numpy as np
import pytest

import sightline as sl

VOCAB, DIM, BLOCK = 64, 8, 4
SPEC = sl.attention_spec(num_q_heads=2, num_kv_heads=1, qk_head_dim=DIM, mask="causal", rope="half_split")


class Engine:
    """One layer of attention over embeddings; keys and values of whole blocks are found again by their tokens."""

    def __init__(self, *, cached=True, chained=True, verified=True, told=True, whole=True, cleared=True, seed=0):
        rng = np.random.default_rng(seed)
        self.table = rng.standard_normal((VOCAB, 3, DIM)).astype(np.float32)
        self.mix = rng.standard_normal((DIM, 3, DIM)).astype(np.float32)
        self.head = rng.standard_normal((2 * DIM, VOCAB)).astype(np.float32)
        self.cached, self.chained, self.verified, self.told = cached, chained, verified, told
        self.whole, self.cleared = whole, cleared
        self.blocks, self.slot = {}, None

    def hash_of(self, key):
        return hash(key)

    def _new(self, ids, identity):
        """Keys and values of all tokens: they depend on what came before, as those of a second layer do."""
        x = self.table[ids].copy()
        if identity is not None:
            x += np.float32(len(identity)) * 0.1
        before = np.cumsum(x[:, 0], 0) / np.arange(1, len(ids) + 1)[:, None]
        return x + np.einsum("td,dpe->tpe", before, self.mix).astype(np.float32)

    def ask(self, ids, identity=None):
        ids = np.asarray(ids)
        made = self._new(ids, identity)
        rows = made.copy()
        if self.cached:
            for begin in range(0, len(ids) - BLOCK + 1, BLOCK):
                end = begin + BLOCK
                key = tuple(ids[0 if self.chained else begin:end]), begin, identity if self.told else None
                found = self.blocks.get(self.hash_of(key))
                if found is not None and (not self.verified or found[0] == key):
                    kept = found[1] if self.whole else np.roll(found[1], 1, axis=0)
                    rows[begin:end, 1:] = kept[:, 1:]
                else:
                    self.blocks[self.hash_of(key)] = key, made[begin:end]
        if not self.cleared:
            if self.slot is not None and len(self.slot) == len(ids):
                rows[:4, 1:] = self.slot[:4, 1:]
            self.slot = made
        q = np.stack([made[-1:, 0], made[-1:, 1]], 1)
        out = sl.attention(q, rows[:, 1:2], rows[:, 2:3], SPEC)
        return out.reshape(-1) @ self.head

    @contextlib.contextmanager
    def one_hash(self):
        self.hash_of = lambda key: key[1]
        self.blocks.clear()
        try:
            yield
        finally:
            del self.hash_of
            self.blocks.clear()


def checked(engine, **options):
    plain = Engine(cached=False)
    return sl.check_prefix_cache(engine.ask, fresh=plain.ask, collide=engine.one_hash, vocab_size=VOCAB, tokens=32,
                                 **options)


@pytest.mark.parametrize("options", [{}, {"identities": [None, "a", "tenant"]}])
def test_a_right_cache_agrees(options):
    report = checked(Engine(), **options)
    assert report.ok and report.verdict == "agrees", str(report)
    assert not any("collision" in line for line in report.blind_spots)


@pytest.mark.parametrize("wrong, variant", [({"chained": False}, "prefix"), ({"verified": False}, "collision"),
                                            ({"told": False}, "identity"), ({"whole": False}, "hit"),
                                            ({"cleared": False}, "stale")])
def test_each_way_of_reusing_what_is_anothers_is_named(wrong, variant):
    report = checked(Engine(**wrong), **({"identities": ["a", "tenant"]} if variant == "identity" else {}))
    assert [f.slug for f in report.faults] == ["cache.prefix_identity"], str(report)
    assert report.faults[0].variant == variant, str(report)
    assert report.faults[0].certain or variant == "stale"
    assert report.faults[0].fix


def test_without_a_fresh_engine_hits_of_a_prompt_on_itself_are_seen():
    engine = Engine(whole=False)
    report = sl.check_prefix_cache(engine.ask, vocab_size=VOCAB, tokens=32)
    assert report.faults[0].variant == "hit" and any("no fresh" in line for line in report.blind_spots)
    assert sl.check_prefix_cache(Engine().ask, vocab_size=VOCAB, tokens=32).ok


def test_texts_are_compared_as_they_are():
    engine, plain = Engine(chained=False), Engine(cached=False)
    report = sl.check_prefix_cache(lambda ids: str(np.argsort(engine.ask(ids))[-4:]),
                                   fresh=lambda ids: str(np.argsort(plain.ask(ids))[-4:]), vocab_size=VOCAB, tokens=32)
    assert [f.variant for f in report.faults] == ["prefix"], str(report)


def test_an_engine_that_answers_in_one_place_is_compared_by_what_it_answered():
    engine, place = Engine(whole=False), np.zeros(VOCAB)

    def ask(ids):
        place[:] = engine.ask(ids)
        return place

    report = sl.check_prefix_cache(ask, vocab_size=VOCAB, tokens=32)
    assert [f.variant for f in report.faults] == ["hit"], str(report)


def test_answers_that_differ_each_time_or_fail_are_broken():
    rng = np.random.default_rng(1)
    assert sl.check_prefix_cache(lambda ids: rng.standard_normal(3)).verdict == "broken"
    report = sl.check_prefix_cache(lambda ids: [][1])
    assert report.verdict == "broken" and "IndexError" in report.summary
    with pytest.raises(TypeError):
        sl.check_prefix_cache(3)
    with pytest.raises(ValueError):
        sl.check_prefix_cache(print, tokens=2)
