"""sl.check_endpoint against a server that runs the model in plain numpy, right or wrong."""
import http.server
import json
import threading

import numpy as np
import pytest

import sightline as sl
import tiny_model
from sightline._endpoint import _readings
from sightline._endpoint_plan import make_plan
from test_model import HAS_MODEL, log_softmax

pytestmark = pytest.mark.skipif(not HAS_MODEL, reason="the package was built without cargo")

TENSORS = tiny_model.weights(3)


class Server(http.server.BaseHTTPRequestHandler):
    """`mode` says what it does with a request."""
    mode = "right"
    count = 0
    kept = {}
    seen = ()  # prompts of this check, in order

    def do_POST(self):
        type(self).count += 1
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, text = 200, None
        if self.mode in ("401", "429"):
            status, text = int(self.mode), "{}"
        elif self.mode == "html":
            text = "<html>hello</html>"
        elif self.mode == "nothing":
            text = ""
        elif self.mode == "other":
            text = json.dumps({"choices": [{"text": "hi"}]})
        else:
            text = json.dumps(self.answer(body["prompt"]))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def answer(self, prompt):
        ids = list(prompt.encode())
        before = max((len(p) for p in self.seen if prompt.startswith(p)), default=0)
        type(self).seen = (*self.seen, prompt)
        positions = None
        if self.mode == "restart" and 0 < before < len(ids):  # positions of what is new start at 0 behind a kept prompt
            positions = np.concatenate([np.arange(before), np.arange(len(ids) - before)])
        theta = tiny_model.CONFIG["rope_theta"]
        if self.mode == "theta":
            tiny_model.CONFIG["rope_theta"] = 25.0
        try:
            logits = tiny_model.forward(TENSORS, ids, positions)
        finally:
            tiny_model.CONFIG["rope_theta"] = theta
        values = log_softmax(logits)[np.arange(len(ids) - 1), ids[1:]]
        tokens = [chr(i) for i in ids]
        if self.mode == "late":
            values = log_softmax(logits)[np.arange(1, len(ids)), ids[1:]]
        if self.mode == "silent":  # the beginning is in the context, and not in the echo
            logits = tiny_model.forward(TENSORS, [256, *ids])[1:]
            values = log_softmax(logits)[np.arange(len(ids) - 1), ids[1:]]
        if self.mode == "hit":  # a prompt that was seen before is given the keys of the request before this one
            last, self.kept["last"] = self.kept.get("last"), ids
            if prompt in self.kept:
                mixed = [*last[:8], *ids[8:]]
                values = log_softmax(tiny_model.forward(TENSORS, mixed))[np.arange(len(ids) - 1), ids[1:]]
            self.kept[prompt] = ids
        if self.mode == "tokens":
            tokens, values = tokens[:-5], values[:-5]
        return {"choices": [{"logprobs": {"tokens": tokens, "token_logprobs": [None, *values.tolist()]}}]}

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def address():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return sl.Model(tiny_model.write(tmp_path_factory.mktemp("endpoint") / "tiny", TENSORS))


def checked(address, model, mode, **options):
    Server.mode, Server.seen = mode, ()
    return sl.check_endpoint(address, model, tolerance=1e-3, **options)


def test_a_right_server_agrees_and_the_requests_are_announced(address, model, capsys):
    Server.count = 0
    report = checked(address, model, "right", budget=3)
    assert report.verdict == "agrees", report
    assert Server.count == 3 and "3 requests to http://127.0.0.1" in capsys.readouterr().err


def test_the_whole_budget_is_asked_and_announced(address, model, capsys):
    Server.count = 0
    report = checked(address, model, "right")
    assert report.verdict == "agrees", report
    assert Server.count == 60 and len(set(Server.seen)) > 10
    told = capsys.readouterr().err
    assert "sightline: 60 requests to http" in told and "asked again" in told and "begin with one asked before" in told
    assert "The same text asked again (" in str(report)


def test_a_plan_has_several_lengths_and_begins_with_what_is_new(model):
    class Large:
        encode, context_length = staticmethod(lambda text: text.split()), 2048

    plan = make_plan(Large, 60)
    lengths = [len(r.text.split()) for r in plan if r.kind == "new"]
    assert len(plan) == 60 and [r.kind for r in plan[:12]] == ["new"] * 12 and max(lengths) > 300 > 20 > min(lengths)
    assert sum(r.kind == "again" for r in plan) == sum(r.kind == "longer" for r in plan) == 24
    for request in plan[12:]:
        begin = plan[request.of].text
        assert request.text == begin if request.kind == "again" else request.text.startswith(begin + " ")
    assert [r.text for r in make_plan(Large, 60, ["a", "b"])] == ["a", "b", "a", "b"]
    assert [r.text for r in make_plan(Large, 3, ["a", "b"])] == ["a", "b", "a"]
    assert len(make_plan(Large, 60, again=False)) == 12
    assert len({r.text for r in make_plan(model, 60)}) > 10, "a context of 128 tokens has room for fewer"


def test_a_cache_that_hits_on_anothers_keys_is_named(address, model, capsys):
    texts = ["the first of two", "and the second one"]
    assert checked(address, model, "right", texts=texts).verdict == "agrees"
    assert "4 requests" in capsys.readouterr().err
    Server.kept.clear()
    report = checked(address, model, "hit", texts=texts)
    assert [(f.slug, f.variant, f.certain) for f in report.faults] == [("cache.prefix_identity", "hit", True)], report
    Server.kept.clear()
    assert checked(address, model, "hit", texts=texts, again=False).verdict == "agrees"


def test_positions_that_restart_behind_a_kept_beginning_are_named(address, model):
    report = checked(address, model, "restart")
    assert report.verdict == "fault" and report.faults[0].slug == "cache.position_offset", report
    assert "behind a beginning that was asked before, new ones right" in report.summary
    assert checked(address, model, "restart", budget=6).verdict == "agrees"


def test_numbers_one_row_late_are_read_so(address, model):
    report = checked(address, model, "late", budget=8)
    assert report.verdict == "convention" and "one row late" in report.summary and report.ok, report


class WithBeginning:
    """Letters as ids, 0 for the beginning."""
    @staticmethod
    def encode(text, add_special=True):
        return [0] * add_special + [ord(c) for c in text]


@pytest.mark.parametrize("tokens, expected", [
    (["<s>", "a", " ", "b"], {"echoed": ([0, 97, 32, 98], 0)}),
    (["<s>", "a", "\u2581", "b", "c"], {"echoed": ([0, 97, 32, 98], 0)}),  # and a token was generated
    (["a", " ", "b"], {"absent": ([97, 32, 98], 0), "silent": ([0, 97, 32, 98], 1)}),
    (["a", "\u0120", "b", "c"], {"absent": ([97, 32, 98], 0), "silent": ([0, 97, 32, 98], 1)}),
    ([" ", "a", " ", "b"], {"echoed": ([0, 97, 32, 98], 0)}),
    (["a", "x", "b"], {}),
    (["a", " "], {}),
])
def test_tokens_are_aligned_by_their_text(tokens, expected):
    assert _readings(WithBeginning, "a b", tokens) == expected


def test_another_base_is_named_with_its_number(address, model):
    report = checked(address, model, "theta", budget=2)
    assert report.verdict == "fault" and report.faults[0].slug == "rope.base", report
    assert abs(report.faults[0].parameters["theta"] - 25) < 0.5 and report.faults[0].certain


def test_a_beginning_that_is_in_the_context_and_not_echoed_is_found(address, tmp_path):
    folder = tiny_model.write(tmp_path / "begins", TENSORS)
    config = folder / "tokenizer_config.json"
    config.write_text(config.read_text().replace('"add_bos_token": false', '"add_bos_token": true'))
    begins = sl.Model(folder)
    assert begins.encode("a") == [256, 97]
    for mode in ("silent", "right"):
        assert checked(address, begins, mode, budget=3).verdict == "agrees"


@pytest.mark.parametrize("mode, words", [("401", "401.*api_key"), ("429", "429.*later"), ("html", "no JSON: '<html>"),
                                         ("nothing", "no JSON"), ("other", "supports? .*echo"),
                                         ("tokens", "tokenizes otherwise")])
def test_what_is_no_endpoint_is_one_line(address, model, mode, words):
    with pytest.raises(ValueError, match=words) as caught:
        checked(address, model, mode, budget=2)
    assert "\n" not in str(caught.value)


def test_nobody_there(model):
    with pytest.raises(ValueError, match="does not answer"):
        sl.check_endpoint("http://127.0.0.1:9", model, timeout=2)
