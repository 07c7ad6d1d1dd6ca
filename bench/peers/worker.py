"""One engine in its own process: JSON lines in, JSON lines out.

    worker.py ENGINE OPTIONS_JSON

{"do": "describe"}                            -> {"version": ..., "build": ...}
{"do": "variants", "row": NAME}               -> {"variants": [...]}
{"do": "turn", "row": NAME, "variant": V}     -> {"seconds": [...], "work": ..., "error": ...}
Whatever goes wrong is answered as {"cannot": REASON}.
"""
import importlib
import json
import os
import sys
import time

import cases

REPEATS = 5             # of each turn, as ours
LEAST_SECONDS = 2e-3    # of a repeat: a shorter body runs several times
TURN_SECONDS = 2.0
TOLERANCE = {"f32": 1e-4, "bf16": 4e-2}  # scaled by the sum of P|v|: catches another mask or head, not rounding


class Worker:
    def __init__(self, engine):
        self.engine = engine
        self.key, self.body, self.error = None, None, None

    def answer(self, request):
        if request["do"] == "describe":
            return self.engine.describe()
        case = cases.parse(request["row"])
        if request["do"] == "variants":
            return {"variants": self.engine.variants(case) if case else []}
        key = (request["row"], request["variant"])
        if key != self.key:
            self.key = self.body = None  # frees the last row's arrays first
            self.body = self.engine.prepare(case, request["variant"])
            self.error = self.check(case)
            self.key = key
        if isinstance(case, cases.ModelCase):
            return {"seconds": [self.body() for _ in range(2)], "tokens": case.num_tokens}
        return {"seconds": self.time(), "work": case.work(), "error": self.error}

    def check(self, case):
        if isinstance(case, cases.ModelCase):
            self.body()
            return None
        error = case.error(self.engine.result(case, self.body()))
        if not error <= TOLERANCE[case.dtype]:
            raise ValueError(f"wrong result: scaled error {error:.1e}")
        return error

    def time(self):
        def repeat(count):
            start = time.perf_counter()
            for _ in range(count):
                self.body()
            return (time.perf_counter() - start) / count
        self.body()
        count = max(1, int(LEAST_SECONDS / max(repeat(1), 1e-7)))
        seconds, start = [], time.perf_counter()
        while len(seconds) < REPEATS and (not seconds or time.perf_counter() - start < TURN_SECONDS):
            seconds.append(repeat(count))
        return seconds


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    options = json.loads(sys.argv[2])
    try:
        worker = Worker(importlib.import_module(f"{sys.argv[1]}_engine").Engine(**options))
    except Exception as problem:  # noqa: BLE001: the reason goes into the table
        worker, broken = None, f"{type(problem).__name__}: {problem}"
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line)) if worker else {"cannot": broken}
        except Exception as problem:  # noqa: BLE001
            answer = {"cannot": f"{type(problem).__name__}: {problem}".splitlines()[0][:300]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
