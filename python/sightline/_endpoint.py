"""check_endpoint: a server that speaks OpenAI's completions, held against the model file that it serves."""
import json
import sys
import time
import urllib.error
import urllib.request

from ._model_file import Model

_TEXTS = (
    "The capital of France is Paris, and the river that runs through it is called the Seine.",
    "In 1969 two people walked on the Moon; a third stayed in orbit and waited for them to come back.",
    "def add(a, b):\n    return a + b\n\nprint(add(2, 3))\n",
    "A list of fruit: apple, pear, cherry, apple, pear, cherry, apple, pear, cherry, apple, pear, cherry.",
    "To make bread you need flour, water, salt and yeast. Mix them, wait an hour, knead, wait again, and bake.",
    "She sells sea shells by the sea shore; the shells that she sells are sea shells, I am sure.",
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
    if not isinstance(values, list) or len(tokens) != len(values) or any(
            not isinstance(x, (int, float)) for x in values[1:]):
        raise EndpointError(f"{url} gave token_logprobs that are no list of numbers, one a token")
    return tokens, values


def _ids_of(model, text, tokens):
    """The file's ids of the tokens that a server echoed, with or without a beginning token and one that it generated;
    None where it tokenizes otherwise. Equal numbers are not enough: a beginning token that is not echoed and a
    generated one at the end cancel out, and every log-probability would stand beside its neighbour's."""
    plain = model.encode(text, add_special=False)
    for ours in (model.encode(text, add_special=True), plain):
        if len(tokens) - len(ours) not in (0, 1):
            continue
        told = "".join(str(token) for token in tokens[len(ours) - len(plain):len(ours)])
        for mark, meant in (("\u2581", " "), ("\u0120", " "), ("\u010a", "\n")):  # as vocabularies spell them
            told = told.replace(mark, meant)
        # Parts of a character have no text of their own, so only ASCII can be compared.
        if told.strip() == text.strip() or not text.isascii():
            return ours
    return None


def check_endpoint(url, model, *, texts=_TEXTS, model_name="default", api_key=None, budget=60, tolerance=0.2, chunk=0,
                   timeout=60.0, file=None):
    """Asks a server for the log-probabilities of some texts and explains them beside the model file: a Report.

    url         of the server, for example "http://localhost:8080"; /v1/completions is asked with echo and logprobs
    model       the file or folder that it serves, or an sl.Model
    texts       what is asked; two or more make a name certain
    budget      requests, at most; how many will be made is printed first
    tolerance   nats that its arithmetic may move a log-probability by
    timeout     seconds of one request
    file        where the number of requests is printed; None: standard error

    EndpointError (a ValueError), one line: no connection, 401, 429, HTML or other JSON, another tokenization of the
    texts. Nothing is retried. Texts whose tokens are not those of the file are an error, not a fault.
    """
    texts = list(texts)[:budget]
    if not texts:
        raise ValueError("check_endpoint: no texts within the budget")
    model = model if isinstance(model, Model) else Model(model)
    address = url.rstrip("/") + ("" if url.rstrip("/").endswith("/completions") else "/v1/completions")
    print(f"sightline: {len(texts)} requests to {address}, one a text", file=file or sys.stderr)
    began, ids, rows = time.monotonic(), [], []
    for text in texts:
        body = {"model": model_name, "prompt": text, "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
        tokens, values = _logprobs(_ask(address, body, api_key, timeout), address)
        ours = _ids_of(model, text, tokens)
        if ours is None:
            raise EndpointError(f"{address} makes {len(tokens)} tokens of {text[:30]!r}..., the file "
                                f"{len(model.encode(text))}: it tokenizes otherwise")
        ids.append(ours)
        rows.append(values[1:len(ours)])
    elapsed = time.monotonic() - began
    print(f"sightline: answered in {elapsed:.1f} s", file=file or sys.stderr)
    return model.diagnose(ids, rows, chunk=chunk, tolerance=tolerance, reproducer=f"sl.check_endpoint({url!r}, ...)")
