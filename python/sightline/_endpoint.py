"""check_endpoint: a server that speaks OpenAI's completions, held against the model file that it serves."""
import json
import sys
import time
import urllib.error
import urllib.request

import numpy as np

from . import _core
from ._model_file import Model
from ._report import report_from

_TEXTS = (
    "The capital of France is Paris, and the river that runs through it is called the Seine.",
    "In 1969 two people walked on the Moon; a third stayed in orbit and waited for them to come back.",
    "def add(a, b):\n    return a + b\n\nprint(add(2, 3))\n",
    "A list of fruit: apple, pear, cherry, apple, pear, cherry, apple, pear, cherry, apple, pear, cherry.",
    "To make bread you need flour, water, salt and yeast. Mix them, wait an hour, knead, wait again, and bake.",
    "She sells sea shells by the sea shore; the shells that she sells are sea shells, I am sure.",
    # Long ones: a wrong base or scale of the rotation shows with the distance.
    "Once upon a time there was a miller who had three sons, a mill, a donkey and a cat. When he died, the eldest "
    "son took the mill, the second took the donkey, and nothing was left for the youngest but the cat. He sat down "
    "by the road and said to himself: my brothers can earn their bread together, but what can I do with a cat? I "
    "could have a pair of gloves made of its fur, and then I would have nothing at all. The cat had heard every "
    "word and answered: do not worry, master. Give me a bag and a pair of boots, so that I can walk through the "
    "bushes, and you will see that your share is not as poor as you think. The miller's youngest son had little "
    "hope, but he had seen the cat play many clever tricks to catch rats and mice, so he gave it what it asked for.",
    "The meeting of 3 March began at 9:30. Present were Anna, Bruno, Clara and David; Emil was ill. First, Anna "
    "read the minutes of the last meeting, and nobody objected. Second, Bruno reported on the budget: of 12,400 "
    "euros, 7,150 had been spent, most of it on the new roof. Clara asked whether the roof would be finished before "
    "the summer, and Bruno said that it would, if the weather allowed it. Third, David proposed to move the next "
    "meeting to 7 April, because Anna and Clara would be away at the end of March. All agreed. Fourth, Clara asked "
    "who would buy the gift for Emil; David will. The meeting ended at 10:15. The minutes were written by Anna and "
    "sent to Bruno, Clara, David and Emil.",
)


class EndpointError(ValueError):
    """The server did not answer as a completions endpoint: one line that says how."""


def _ask(url, body, api_key, timeout):
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            text = reply.read(64 << 20).decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        hints = {401: "; give api_key", 403: "; give api_key", 429: "; it asks to wait, try again later"}
        hint = hints.get(error.code, "")
        raise EndpointError(f"{url} answered {error.code} {error.reason}{hint}") from None
    except (urllib.error.URLError, TimeoutError, ConnectionError, OSError) as error:
        raise EndpointError(f"{url} does not answer: {getattr(error, 'reason', error)}") from None
    try:
        return json.loads(text)
    except ValueError:
        start = text.strip()[:40].replace("\n", " ")
        raise EndpointError(f"{url} answered no JSON: {start!r}") from None


def _logprobs(reply, url):
    """(tokens, log-probabilities) of the prompt in a reply with echo."""
    try:
        entry = reply["choices"][0]["logprobs"]
        tokens, values = entry["tokens"], entry["token_logprobs"]
    except (KeyError, IndexError, TypeError):
        raise EndpointError(f"{url} gave no choices[0].logprobs with tokens and token_logprobs: does it support echo "
                            "and logprobs on /v1/completions?") from None
    if not isinstance(tokens, list) or not isinstance(values, list) or len(tokens) != len(values) or any(
            not isinstance(x, (int, float)) for x in values[1:]):
        raise EndpointError(f"{url} gave tokens and token_logprobs that are no lists of equal length, of numbers")
    return tokens, values


def _readings(model, text, tokens):
    """What a server may have run to echo these tokens, of which one may be generated: (ids, how many beginning tokens
    are not echoed) by "echoed", "absent" or "silent", which says of the beginning token what became of it. Several
    where texts alone cannot tell (a generated token without text at the end and a beginning that is dropped from the
    echo cancel out, and every log-probability would stand beside its neighbour's); {} where it tokenizes otherwise.
    llama-cpp-python has a silent one: in the context and not in the echo.
    """
    special, plain = model.encode(text, add_special=True), model.encode(text, add_special=False)
    begins, found = len(special) - len(plain), {}
    for ours in (special, plain) if begins else (plain,):
        if len(tokens) - len(ours) not in (0, 1):
            continue
        told = "".join(str(token) for token in tokens[len(ours) - len(plain):len(ours)])
        for mark, meant in (("\u2581", " "), ("\u0120", " "), ("\u010a", "\n")):  # as vocabularies spell them
            told = told.replace(mark, meant)
        # Parts of a character have no text of their own, so only ASCII can be compared.
        if told.strip() != text.strip() and text.isascii():
            continue
        found["echoed" if ours is special else "absent"] = ours, 0
        if ours is plain and begins and special[begins:] == plain:
            found["silent"] = special, begins
    return found


def _nearest(model, kinds):
    """Of the readings of all texts by kind, [(ids, rows), ...] each, those whose numbers lie nearest to the model's."""
    def distance(texts):
        squares = [(x - y)**2 for ids, row in texts for x, y in zip(row, model.log_probs(ids)) if x is not None]
        return sum(squares) / max(1, len(squares))  # a text of one token has no number

    best = min(kinds.values(), key=distance)
    return best, distance(best)


def _late_distance(model, texts):
    """The same distance where each number is what the row after a token gives that token: a fault of the server's
    bookkeeping, not of its model."""
    squares = []
    for ids, row in texts:
        logits = model.logits(ids).astype(np.float64)
        own = logits[np.arange(len(ids)), ids] - np.logaddexp.reduce(logits, axis=-1)
        squares += [(x - y)**2 for x, y in zip(row, own[1:]) if x is not None]
    return sum(squares) / len(squares)


_WARM = 0.5  # nats between a text's first answer and its next that are no rounding, whatever the server computes in


def _warm_report(cold, warm, address, reproducer):
    """The Report where texts are answered otherwise when they are asked again, or None: {text: values} of both."""
    def change(text):
        pairs = [(a, b) for a, b in zip(cold[text], warm[text]) if a is not None and b is not None]
        return max((abs(a - b) for a, b in pairs), default=0.0)

    changed = [text for text in warm if len(warm[text]) != len(cold[text]) or change(text) > _WARM]
    if not changed:
        return None
    what = "a text is answered otherwise when it is asked again: keys that were kept are not its own"
    evidence = [(f"nats between the first answer and the next: {text[:30]!r}", change(text)) for text in warm]
    return report_from(*_core.make_report(
        verdict="fault", summary=f"fault: cache.prefix_identity/hit: {what}",
        faults=[("cache.prefix_identity", "hit", what, [("texts", float(len(changed)), "answered otherwise")], 0.0,
                 len(changed) > 1)],
        evidence=evidence, next_probe="sl.check_prefix_cache(ask, fresh=fresh) in the server's process",
        first_difference=None, blind_spots=[], declared=address, reproducer=reproducer))


def check_endpoint(url, model, *, texts=None, model_name="default", api_key=None, budget=60, tolerance=None,
                   their_types=None, chunk=0, timeout=60.0, again=True, file=None):
    """Asks a server for the log-probabilities of some texts and explains them beside the model file: a Report.

    url         of the server, for example "http://localhost:8080"; /v1/completions is asked with echo and logprobs
    model       the file or folder that it serves, or an sl.Model
    texts       what is asked; two or more make a name certain. None: eight of our own, of 20 to 180 tokens in
                common vocabularies, as far as they fit the model's context
    budget      requests, at most; how many will be made is printed first
    their_types  what the server rounds, as in Model.diagnose: "llama.cpp" for its servers on a CPU. Say it where
                you know it: how far that moves each log-probability is then measured
    tolerance   nats that its arithmetic may move a log-probability by; None: 2e-3 (that of f32) beside
                their_types, else 0.2, which hides small faults
    timeout     seconds of one request
    again       texts are asked a second time, in their order, as far as the budget reaches: a cache of prefixes that
                hits then must give the numbers of the miss, else `cache.prefix_identity`
    file        where the number of requests is printed; None: standard error

    EndpointError (a ValueError), one line: no connection, 401, 429, HTML or other JSON, another tokenization of the
    texts. Nothing is retried. Texts whose tokens are not those of the file are an error, not a fault.
    """
    model = model if isinstance(model, Model) else Model(model)
    if texts is None:
        texts = [text for text in _TEXTS if len(model.encode(text)) < model.context_length]
    texts = list(texts)[:budget]
    if not texts:
        raise ValueError("check_endpoint: no texts within the budget")
    if tolerance is None:
        tolerance = 2e-3 if their_types else 0.2
    address = url.rstrip("/") + ("" if url.rstrip("/").endswith("/completions") else "/v1/completions")
    twice = texts[:budget - len(texts)] if again else []
    print(f"sightline: {len(texts) + len(twice)} requests to {address}, "
          f"{'two' if twice else 'one'} a text", file=file or sys.stderr)
    began, asked, kinds, cold = time.monotonic(), 0, {}, {}

    def answer(text):
        body = {"model": model_name, "prompt": text, "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
        return _logprobs(_ask(address, body, api_key, timeout), address)

    for text in texts:
        tokens, values = answer(text)
        cold[text] = values
        found = {kind: (ids, [None] * unseen + values[1:len(ids) - unseen])
                 for kind, (ids, unseen) in _readings(model, text, tokens).items()}
        kinds = {kind: texts + [found[kind]] for kind, texts in kinds.items() if kind in found} if asked else {
            kind: [reading] for kind, reading in found.items()}
        asked += 1
        if not kinds:
            raise EndpointError(f"{address} makes {len(tokens)} tokens of {text[:30]!r}..., the file "
                                f"{len(model.encode(text))}: it tokenizes otherwise")
    warm = {text: answer(text)[1] for text in twice}
    elapsed = time.monotonic() - began
    print(f"sightline: answered in {elapsed:.1f} s", file=file or sys.stderr)
    texts, distance = _nearest(model, kinds)
    if "absent" in kinds and 16 * _late_distance(model, kinds["absent"]) < distance:
        raise EndpointError(f"{address} gives each token the log-probability that the row after it gives: one row late")
    ids, rows = zip(*texts)
    reproducer = f"sl.check_endpoint({url!r}, ...)"
    report = model.diagnose(list(ids), list(rows), chunk=chunk, tolerance=tolerance, their_types=their_types,
                            reproducer=reproducer)
    return report.ok and _warm_report(cold, warm, address, reproducer) or report
