"""check_prefix_cache: something that answers prompts and keeps their keys, asked so that a hit on another's shows."""
import contextlib

import numpy as np

from . import _core
from ._arrays import real_numbers
from ._report import report_from

_SLUG = "cache.prefix_identity"
_DRAWS = 2  # of each question; a fault that both show is certain


class _Answers:
    """Asks, and compares what came: numbers by their largest, anything else by equality."""

    def __init__(self, ask, fresh, takes_identity, tolerance):
        self._ask, self._fresh, self._takes_identity = ask, fresh, takes_identity
        self.tolerance = tolerance

    def _call(self, fn, ids, identity):
        got = fn(list(ids), identity) if self._takes_identity else fn(list(ids))
        if isinstance(got, (str, bytes)):
            return got
        return real_numbers(got, "the answer").copy()  # an engine may write each answer to the same place

    def ask(self, ids, identity=None):
        return self._call(self._ask, ids, identity)

    def fresh(self, ids, identity=None):
        return self._call(self._fresh, ids, identity)

    def change(self, want, got):
        """Largest difference over the largest number; infinite between things of another kind."""
        if isinstance(want, (str, bytes)) or isinstance(got, (str, bytes)) or want.shape != got.shape:
            return 0.0 if type(want) is type(got) and isinstance(want, (str, bytes)) and want == got else np.inf
        scale = np.abs(want).max(initial=0.0) or 1.0
        return float(np.nan_to_num(np.abs(got - want), nan=np.inf).max(initial=0.0) / scale)

    def same(self, want, got):
        return self.change(want, got) <= self.tolerance


class _Seen:
    """How often each question was answered wrongly, and how."""

    def __init__(self):
        self.worst, self.wrong, self.whose = {}, {}, {}

    def add(self, name, variant, what, change, tolerance, is_of_other=False):
        self.worst[name] = max(self.worst.get(name, 0.0), change)
        if change > tolerance:
            count = self.wrong.get(variant, (0, what))[0]
            self.wrong[variant] = count + 1, what
            self.whose[variant] = self.whose.get(variant, True) and is_of_other


def check_prefix_cache(ask, *, fresh=None, identities=(), collide=None, vocab_size=256, tokens=96, tolerance=1e-4,
                       seed=0):
    """Asks something that reuses the keys of earlier prompts whether it ever reuses another request's: a Report.

    ask         ask(ids) -> numbers (logits or log-probabilities of what follows) or a text; greedy, with the prefix
                cache on. Where `identities` are given, ask(ids, identity)
    fresh       the same of an engine whose cache is empty or off: what is right. None: a prompt's first answer is,
                and only hits of a prompt on itself can be looked at
    identities  what else than tokens changes a request's keys or must keep it apart: names of adapters, salts, images;
                each two are asked with the same tokens
    collide     a context manager, or a function that returns one, under which the cache's hash is the same for all
                prompts: `lambda: mock.patch.object(engine, "hash_of", lambda *_: 0)`. A right cache compares tokens
    vocab_size  tokens are drawn below it
    tokens      of a prompt: several blocks of the cache
    tolerance   change of the answer, over its largest number, that is rounding: a hit adds in another order

    Names `cache.prefix_identity`: a hit that is answered otherwise than the miss (hit), a block found whatever came
    before it (prefix), keys of another identity (identity), of another prompt of the same hash (collision), of a
    prompt that was there before (stale). Certain where two prompts show it and nothing else fails, it is a hit of a
    prompt on itself, or the answer is the other's. Some forty calls. `broken` where it raises, or answers differ each
    time.
    """
    if not callable(ask) or (fresh is not None and not callable(fresh)):
        raise TypeError("check_prefix_cache asks a function")
    if vocab_size < 4 or tokens < 8:
        raise ValueError(f"vocab_size is {vocab_size} and tokens {tokens}, expected at least 4 and 8")
    rng = np.random.default_rng(seed)
    answers, seen = _Answers(ask, fresh, len(identities) > 0, tolerance), _Seen()
    first = identities[0] if len(identities) else None

    def prompt():
        return rng.integers(0, vocab_size, tokens)

    unseen = [] if collide is not None else ["a collision of hashes: no collide was given"]
    if len(identities) < 2:
        unseen.append("identities beside the tokens: none were given")
    if fresh is None:
        unseen.append("hits on other prompts: no fresh was given, so only what a prompt was first answered is right")
    broken = None
    try:
        broken = _repeated(answers, seen, prompt, first)
        if broken is None and fresh is not None:
            _other_prompts(answers, seen, prompt, first, vocab_size)
            _other_identities(answers, seen, prompt, identities)
            if collide is not None:
                _collisions(answers, seen, prompt, first, collide)
    except Exception as error:  # of the subject
        lines = str(error).strip().splitlines() or [""]
        broken = f"when it was asked: {type(error).__name__}: {lines[0][:160]}"
    faults = []
    if broken is None and seen.wrong:
        variant, (count, what) = max(seen.wrong.items(), key=lambda item: item[1][0])
        others = [words for name, (_, words) in seen.wrong.items() if name != variant]
        # What alone fails is shown by its condition; a stale slot only by whose answer it gives.
        alone = variant != "stale" and not set(seen.wrong) - {variant}
        certain = count >= _DRAWS and (seen.whose[variant] or variant == "hit" or alone)
        faults = [(_SLUG, variant, "; ".join([what, *others]), [("questions", float(count), "answered wrongly")],
                   0.0, certain)]
        verdict, summary = "fault", f"fault: {_SLUG}/{variant}: {what}"
    elif broken is not None:
        verdict, summary = "broken", "broken: " + broken
    else:
        verdict, summary = "agrees", f"agrees: {len(seen.worst)} relations hold"
    return report_from(*_core.make_report(
        verdict=verdict, summary=summary, faults=faults,
        evidence=[(f"relative change: {name}", value) for name, value in seen.worst.items()], next_probe="",
        first_difference=None, blind_spots=unseen, declared=f"a prefix cache, prompts of {tokens} tokens",
        reproducer="import sightline as sl\n\nsl.check_prefix_cache(ask, fresh=fresh, identities=identities, "
                   f"collide=collide, vocab_size={vocab_size}, tokens={tokens}, seed={seed})"))


def _repeated(answers, seen, prompt, identity):
    """A prompt asked again, and once more after another one. Returns what is broken, or None."""
    for _ in range(_DRAWS):
        ids = prompt()
        cold, warm, again = (answers.ask(ids, identity) for _ in range(3))
        if not isinstance(cold, (str, bytes)) and np.isnan(cold).any():
            return "its answer is NaN"
        change = answers.change(cold, warm)
        if change > answers.tolerance and not answers.same(warm, again):
            return "answers differ each time, when the same prompt is asked three times"
        seen.add("the same prompt again = its first answer", "hit",
                 "a prompt that is found in the cache is answered otherwise than when it was not", change,
                 answers.tolerance)
        other = answers.ask(prompt(), identity)
        back = answers.ask(ids, identity)
        if change <= answers.tolerance:
            seen.add("the same prompt after another one = its first answer", "stale",
                     "a prompt is answered with keys that an earlier one left", answers.change(cold, back),
                     answers.tolerance, answers.same(other, back))
    return None


def _other_prompts(answers, seen, prompt, identity, vocab_size):
    """Prompts that begin alike, end alike, or share nothing, each after another one, beside a fresh answer."""
    for _ in range(_DRAWS):
        ids = prompt()
        half = len(ids) // 2
        answers.ask(ids, identity)
        of_first = answers.fresh(ids, identity)
        ends_alike = ids.copy()
        ends_alike[:half // 4 + 1] = (ends_alike[:half // 4 + 1] + 1) % vocab_size
        begins_alike = np.concatenate([ids[:half], prompt()[half:]])
        for name, variant, what, asked in (
                ("a prompt that begins otherwise than the last and ends alike = fresh", "prefix",
                 "a block of the cache is found by its own tokens, whatever came before them", ends_alike),
                ("a prompt that begins as the last one does = fresh", "hit",
                 "a prompt that is found in the cache is answered otherwise than when it was not", begins_alike),
                ("an unrelated prompt = fresh", "stale",
                 "a prompt is answered with keys that an earlier one left", prompt())):
            want, got = answers.fresh(asked, identity), answers.ask(asked, identity)
            seen.add(name, variant, what, answers.change(want, got), answers.tolerance,
                     variant == "prefix" or answers.same(of_first, got))


def _other_identities(answers, seen, prompt, identities):
    for i, first in enumerate(identities):
        for second in identities[i + 1:]:
            for _ in range(_DRAWS):
                ids = prompt()
                before = answers.ask(ids, first)
                want, got = answers.fresh(ids, second), answers.ask(ids, second)
                seen.add("the same tokens under another identity = fresh", "identity",
                         f"a request of {second!r} is answered with the keys of {first!r}: the identity lacks it",
                         answers.change(want, got), answers.tolerance, answers.same(before, got))


def _collisions(answers, seen, prompt, identity, collide):
    held = collide() if callable(collide) and not hasattr(collide, "__enter__") else collide
    with held if held is not None else contextlib.nullcontext():
        for _ in range(_DRAWS):
            ids, other = prompt(), prompt()
            before = answers.ask(ids, identity)
            want, got = answers.fresh(other, identity), answers.ask(other, identity)
            seen.add("another prompt of the same hash = fresh", "collision",
                     "a prompt is answered with another's keys, whose hash is the same: tokens are not compared",
                     answers.change(want, got), answers.tolerance, answers.same(before, got))
