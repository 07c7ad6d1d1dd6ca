"""check_endpoint: a server that speaks OpenAI's completions, held against the model file that it serves."""
import json
import sys
import time
import urllib.error
import urllib.request

import numpy as np

from . import _core
from ._endpoint_plan import describe, make_plan
from ._model_file import Model
from ._report import report_from

_WARM = 0.5  # nats between two answers to one text that are no rounding, whatever the server computes in


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
    """(kind, mean square difference) of the reading of all texts, [(ids, rows), ...] of each kind, whose numbers lie
    nearest to the model's."""
    def distance(texts):
        squares = [(x - y)**2 for ids, row in texts for x, y in zip(row, model.log_probs(ids)) if x is not None]
        return sum(squares) / max(1, len(squares))  # a text of one token has no number

    distances = {kind: distance(texts) for kind, texts in kinds.items()}
    return min(distances.items(), key=lambda item: item[1])


def _late_differences(model, texts):
    """[(text, position, expected, got)] where each number is what the row after a token gives that token: a fault of
    the server's bookkeeping, not of its model."""
    pairs = []
    for number, (ids, row) in enumerate(texts):
        logits = model.logits(ids).astype(np.float64)
        own = logits[np.arange(len(ids)), ids] - np.logaddexp.reduce(logits, axis=-1)
        pairs += [(number, i + 1, float(x), y) for i, (x, y) in enumerate(zip(own[1:], row)) if y is not None]
    return pairs


def _late_distance(pairs):
    """The mean square of those differences."""
    return sum((x - y)**2 for _, _, x, y in pairs) / max(1, len(pairs))


def _late_report(pairs, limit, reproducer):
    """The Report on a server that pairs each token with the row after it, read so."""
    text, position, expected, got = max(pairs, key=lambda p: abs(p[2] - p[3]))
    worst, mean = abs(expected - got), _late_distance(pairs)**0.5
    late = "the server pairs each token with the row after it, one row late"
    if worst <= limit:
        verdict, summary = "convention", f"convention: {late}; read so, it agrees within {worst:.3g} nats"
    else:
        verdict, summary = "unknown", f"unknown: {late}; read so, it still differs by {worst:.3g} nats"
    evidence = [(f"Read one row later, the log-probabilities differ from the file's by {worst:.3g} nats at most.",
                 worst),
                (f"The root mean square of those {len(pairs)} differences is {mean:.3g} nats.", mean)]
    probe = "" if worst <= limit else "a server that pairs each token with the row before it"
    return report_from(*_core.make_report(
        verdict=verdict, summary=summary, faults=[], evidence=evidence, next_probe=probe, blind_spots=[],
        first_difference=None if worst <= limit else (f"logprobs of text {text}", [position], expected, got),
        declared="the model file as it is", reproducer=reproducer))


class _Answers:
    """The replies to a plan as (ids, row) by every reading that all of them allow."""

    def __init__(self, model):
        self.model, self.kinds, self.count = model, {}, 0

    def add(self, text, tokens, values, address):
        found = {kind: (ids, [None] * unseen + values[1:len(ids) - unseen])
                 for kind, (ids, unseen) in _readings(self.model, text, tokens).items()}
        before = self.kinds if self.count else {kind: [] for kind in found}
        self.kinds = {kind: rows + [found[kind]] for kind, rows in before.items() if kind in found}
        self.count += 1
        if not self.kinds:
            raise EndpointError(f"{address} makes {len(tokens)} tokens of {text[:30]!r}..., the file "
                                f"{len(self.model.encode(text))}: it tokenizes otherwise")


def _differences(a, b):
    """[(position, difference)] of the log-probabilities that two answers have of the same beginning."""
    (a_ids, a_row), (b_ids, b_row) = a, b
    same = next((i for i, (x, y) in enumerate(zip(a_ids, b_ids)) if x != y), min(len(a_ids), len(b_ids)))
    return [(i, abs(a_row[i] - b_row[i])) for i in range(max(0, same - 1))
            if a_row[i] is not None and b_row[i] is not None]


def _with(report, reproducer, *, evidence, verdict=None, summary=None, faults=None, next_probe=None):
    """The report with more evidence, and with another verdict, summary, faults or probe where they are given."""
    first = report.first_difference
    if faults is None:
        faults = [(f.slug, f.variant, f.what, [(name, value, "") for name, value in f.parameters.items()], f.misfit,
                   f.certain) for f in report.faults]
    return report_from(*_core.make_report(
        verdict=verdict or report.verdict, summary=summary or report.summary, faults=faults,
        evidence=[(e["what"], e["value"]) for e in report.evidence] + evidence,
        next_probe=next_probe or report.next_probe or "", blind_spots=report.blind_spots,
        first_difference=first and (first["tensor"], first["index"], first["expected"], first["got"]),
        declared="the model file as it is", reproducer=reproducer))


class _Warm:
    """What a server answers when it was asked the same, or the same beginning, before."""

    def __init__(self, plan, answers):
        self.num, self.worst, self.where = {"again": 0, "longer": 0}, {"again": 0.0, "longer": 0.0}, {}
        self.texts = {}   # largest difference of each text, by its first request
        self.begins = []  # (index of the request, how many tokens were asked before)
        for i, request in enumerate(plan):
            if request.kind == "new":
                continue
            self.num[request.kind] += 1
            differences = _differences(answers[request.of], answers[i])
            if differences:
                most = max(difference for _, difference in differences)
                self.texts[request.of] = max(self.texts.get(request.of, 0.0), most)
            for position, difference in differences:
                if difference > self.worst[request.kind]:
                    self.worst[request.kind] = difference
                    self.where[request.kind] = (request.text, position + 1)
            if request.kind == "longer" and differences:
                self.begins.append((i, differences[-1][0] + 2))

    def evidence(self):
        words = {"again": "The same text asked again", "longer": "The beginning of a text that was asked before"}
        return [(f"{words[kind]} ({n} requests) is answered otherwise by {self.worst[kind]:.3g} nats at most.",
                 self.worst[kind]) for kind, n in self.num.items() if n]

    def fault(self, limit):
        """(summary, fault) of answers that depend on what was asked before; None where they do not."""
        changed = [kind for kind in self.num if self.worst[kind] > limit]
        if not changed:
            return None
        (text, position), worst = self.where[changed[0]], self.worst[changed[0]]
        what = "a text is answered otherwise when it is asked again" if changed[0] == "again" else (
            "a text is answered otherwise when it begins another")
        what += ": keys that were kept are not its own"
        number = len(self.changed(limit))
        summary = (f"fault: cache.prefix_identity/hit: {what} (by {worst:.3g} nats at token {position} of "
                   f"{text[:30]!r}...)")
        return summary, ("cache.prefix_identity", "hit", what, [("texts", float(number), "answered otherwise")], 0.0,
                         number > 1)

    def changed(self, limit):
        """Texts that were answered otherwise."""
        return {of for of, worst in self.texts.items() if worst > limit}


def _tails(model, plan, answers, begins, limit):
    """Of the longer texts those whose end differs from the file by more than `limit`: [(ids, row, tokens before)]."""
    wrong = []
    for i, before in begins:
        ids, row = answers[i]
        own = model.log_probs(ids)
        if max((abs(x - y) for x, y in list(zip(row, own))[before - 1:] if x is not None), default=0.0) > limit:
            wrong.append((ids, row, before))
    return wrong


def check_endpoint(url, model, *, texts=None, model_name="default", api_key=None, budget=60, tolerance=None,
                   their_types=None, chunk=0, timeout=60.0, again=True, file=None):
    """Asks a server for the log-probabilities of some texts and explains them beside the model file: a Report.

    url         of the server, for example "http://localhost:8080"; /v1/completions is asked with echo and logprobs
    model       the file or folder that it serves, or an sl.Model
    texts       what is asked; two or more make a name certain. None: up to twelve of our own, of 20 to 384 tokens in
                common vocabularies, as far as they fit the model's context
    budget      requests; what will be asked is printed first. Up to twelve all are new texts
    their_types  what the server rounds, as in Model.diagnose: "llama.cpp" for its servers on a CPU. Say it where
                you know it: how far that moves each log-probability is then measured
    tolerance   nats that its arithmetic may move a log-probability by; None: 2e-3 (that of f32) beside
                their_types, else 0.2, which hides small faults
    timeout     seconds of one request
    again       until the budget is used our texts are asked by turns again and with a sentence behind them, yours
                once again: a cache of prefixes that hits then must give the numbers of the miss, else
                `cache.prefix_identity`
    file        where the number of requests is printed; None: standard error

    A server that pairs each token with the row after it is read so: a `convention` where that is all, else `unknown`.
    An end that is wrong only behind a beginning that was asked before is looked for as a fault of a cache.
    EndpointError (a ValueError), one line: no connection, 401, 429, HTML or other JSON, another tokenization of the
    texts. Nothing is retried. Texts whose tokens are not those of the file are an error, not a fault.
    """
    model = model if isinstance(model, Model) else Model(model)
    plan = make_plan(model, budget, texts, again)
    if not plan:
        raise ValueError("check_endpoint: no texts within the budget")
    if tolerance is None:
        tolerance = 2e-3 if their_types else 0.2
    address = url.rstrip("/") + ("" if url.rstrip("/").endswith("/completions") else "/v1/completions")
    print(f"sightline: {len(plan)} requests to {address}: {describe(plan)}", file=file or sys.stderr)
    began, read = time.monotonic(), _Answers(model)
    for request in plan:
        body = {"model": model_name, "prompt": request.text, "max_tokens": 1, "echo": True, "logprobs": 1,
                "temperature": 0}
        tokens, values = _logprobs(_ask(address, body, api_key, timeout), address)
        read.add(request.text, tokens, values, address)
    print(f"sightline: answered in {time.monotonic() - began:.1f} s", file=file or sys.stderr)
    is_new = [request.kind == "new" for request in plan]
    new = lambda rows: [row for row, wanted in zip(rows, is_new) if wanted]  # noqa: E731
    kind, distance = _nearest(model, {kind: new(rows) for kind, rows in read.kinds.items()})
    answers = read.kinds[kind]
    limit, reproducer = _WARM if their_types else min(_WARM, 2 * tolerance), f"sl.check_endpoint({url!r}, ...)"
    if "absent" in read.kinds:
        late = _late_differences(model, new(read.kinds["absent"]))
        if 16 * _late_distance(late) < distance:
            return _late_report(late, 3 * _WARM if their_types else tolerance, reproducer)
    asked = {"tolerance": tolerance, "their_types": their_types, "reproducer": reproducer}
    ids, rows = zip(*new(answers))
    report = model.diagnose(list(ids), list(rows), chunk=chunk, **asked)
    warm = _Warm(plan, answers)
    if not warm.evidence():
        return report
    evidence = warm.evidence()
    if not report.ok:
        return _with(report, reproducer, evidence=evidence)
    if found := warm.fault(limit):
        return _with(report, reproducer, evidence=evidence, verdict="fault", summary=found[0], faults=[found[1]],
                     next_probe="sl.check_prefix_cache(ask, fresh=fresh) in the server's process")
    wrong = _tails(model, plan, answers, warm.begins, limit)
    if not wrong:
        return _with(report, reproducer, evidence=evidence)
    # A kept beginning is a first call, its end the next: of the texts with the commonest beginning whose end is no
    # longer, or there would be three calls.
    wrong = [text for text in wrong if len(text[0]) <= 2 * text[2]] or wrong
    lengths = [before for *_, before in wrong]
    before = max(lengths, key=lengths.count)
    ids, rows = zip(*[(ids, row) for ids, row, length in wrong if length == before])
    report = model.diagnose(list(ids), list(rows), chunk=before, **asked)
    what = (f"{len(wrong)} of {len(warm.begins)} texts are wrong behind a beginning that was asked before, new ones "
            "right")
    return _with(report, reproducer, evidence=[*evidence, (what + ".", float(len(wrong)))],
                 summary=f"{report.summary} ({what})")
