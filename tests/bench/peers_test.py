#!/usr/bin/env python3
"""The comparison with other programs, without running any: names of rows, and the page that bench/peers/report writes.

    peers_test.py SOURCE_FOLDER
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent.parent).resolve()
sys.path.insert(0, str(ROOT / "bench/peers"))

import row_names  # noqa: E402


def ours(seconds, **more):
    run = {"figure": 0.5, "steady": True, "limit_before": 1e11, "limit_after": 1e11, "seconds": [seconds]}
    return {"measured": True, "note": "checked", "limit": "f32 peak", "figure": 0.5, "median_s": seconds,
            "minimum_s": seconds, "work": 1e8, "runs": [run], **more}


def rival(name, seconds, **more):
    return {"name": name, "engine": "x", "variant": name, "median_s": seconds, "minimum_s": seconds, "work": 1e8, **more}


def document(*rows):
    return {"origins": [{"date": "2026-01-01", "command": "bench/peers/run --turns 7", "commit": "abc"}], "threads": 2,
            "turns": 7,
            "machine": {"cpu": "a CPU", "flags": ["avx2"], "cores": 2, "memory_gib": 8, "system": "Linux 6.1"},
            "calibration": {"isa": "avx2", "peak_f32_flops": 1e11, "peak_bf16_flops": None, "peak_int8_ops": None, "reads": []},
            "engines": {"torch": {"version": "torch 9"}, "openvino": {"cannot": "could not be installed"}},
            "rows": list(rows)}


def report(json_document, goals=None):
    """(page, names of its plots)"""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "in.json").write_text(json.dumps(json_document))
        if goals is not None:
            (path / "goals.json").write_text(json.dumps(goals))
        subprocess.run([sys.executable, ROOT / "bench/peers/report", path / "in.json", "--docs", path, "--goals",
                        path / "goals.json"], check=True)
        return (path / "performance.md").read_text(), sorted(p.name for p in path.glob("*.svg"))


def line_of(page, name):
    return next(line for line in page.splitlines() if name in line)


class Names(unittest.TestCase):
    def test_a_name_says_the_shape(self):
        case = row_names.parse("chunk512-f32-paged-d128-k4096")
        self.assertEqual((case.q_heads, case.kv_heads, case.num_q, case.num_kv, case.mask), (32, 8, 512, 4096, "causal"))
        self.assertTrue(row_names.parse("backward-bf16-causal-d64-T512").backward)
        self.assertEqual(row_names.parse("tg64 @ d4096"), row_names.ModelCase("tg64 @ d4096", False, 64, 4096))

    def test_rows_that_no_rival_runs_are_left_out(self):
        families = {"f32-dense-d64-T512": "attention", "avx2-f32-dense-d64-T2048": "attention", "call-1x1x64": "call",
                    "pp512": "model"}
        self.assertEqual(row_names.select("all", families), ["f32-dense-d64-T512", "pp512"])
        self.assertEqual(row_names.select("model,f32-*", families), ["f32-dense-d64-T512", "pp512"])


class Page(unittest.TestCase):
    def test_a_loss_stays_and_is_said(self):
        page, _ = report(document({"row": "f32-dense-d64-T512", "ours": ours(2e-3), "rivals": [rival("torch SDPA", 1e-3)]}))
        self.assertIn("0.50 x, **slower**", line_of(page, "torch SDPA"))
        self.assertIn("1.45: **short**", line_of(page, "torch SDPA"))
        self.assertIn("ours is the fastest in 0", page)

    def test_a_mark_for_the_best_rival_is_the_fastest_ones_alone(self):
        row = {"row": "f32-causal-d128-T512", "ours": ours(1e-3), "rivals": [rival("zentorch", 1.6e-3), rival("openvino", 1.8e-3)]}
        page, _ = report(document(row))
        self.assertIn("1.75: **short**", line_of(page, "zentorch"))
        self.assertNotIn("1.75", line_of(page, "| | openvino"))

    def test_turns_in_which_the_machine_was_slower_do_not_count(self):
        def run(before, after, seconds):
            return {"figure": 0.5, "steady": True, "limit_before": before, "limit_after": after, "seconds": [seconds]}
        # A turn across which the calibration moved, two at half speed, one before rivals that met a slower machine.
        runs = [run(1e11, 1e11, 1e-3), run(1e11, 1e11, 1e-3), run(1e11, 0.9e11, 9e-3), run(0.5e11, 0.5e11, 9e-3), run(0.5e11, 0.5e11, 9e-3),
                run(1e11, 1e11, 9e-3), run(0.9e11, 0.9e11, 1e-3), run(0.9e11, 0.9e11, 1e-3)]
        theirs = [[2e-3], [2e-3], [1e-6], [1e-6], [1e-6], [1e-6], [2e-3], [2e-3]]
        row = {"row": "f32-dense-d64-T512", "ours": ours(5e-3, runs=runs), "rivals": [rival("torch SDPA", 1e-6, turns=theirs)]}
        page, _ = report(document(row))
        self.assertIn("4 of 8 turns", line_of(page, "**Sightline** | 1 "))
        self.assertIn("2.00 x, faster", line_of(page, "torch SDPA"))
        row["ours"] = ours(5e-3, runs=[*runs[:2], *runs[2:4] * 3][:7])
        self.assertIn("unsteady", line_of(report(document(row))[0], "**Sightline** | "))

    def test_tokens_a_second_are_of_the_turns_that_count(self):
        def run(limit, seconds):
            return {"figure": 0.5, "steady": True, "limit_before": limit, "limit_after": limit, "seconds": [seconds]}
        runs = [run(1e11, 2.0), run(1e11, 2.0), run(1e11, 2.0), run(1e11, 2.0), run(0.5e11, 4.0)]
        row = {"row": "pp512", "ours": ours(4.0, runs=runs, tokens_per_s=128.0), "rivals": []}
        self.assertIn("256 tokens/s", line_of(report(document(row))[0], "**Sightline** | "))

    def test_useful_work_is_compared_where_the_two_sides_see_other_pairs(self):
        row = {"row": "mask-documents-f32-d64-T4096", "ours": ours(1e-3),
               "rivals": [rival("torch FlexAttention", 4e-3, work=2e8)]}
        self.assertIn("2.00 x, faster", line_of(report(document(row))[0], "FlexAttention"))

    def test_what_was_not_measured_says_why(self):
        row = {"row": "f32-dense-d64-T512", "ours": {"measured": False, "note": "no model"},
               "rivals": [{"name": "openvino", "turns": [], "cannot": "wrong | result"}]}
        page, _ = report(document(row))
        self.assertIn("no model", line_of(page, "**Sightline**"))
        self.assertIn("wrong \\| result", line_of(page, "| | openvino"))
        self.assertIn("could not be installed", page)

    def test_plots_are_there_for_rows_over_lengths_and_named_in_the_page(self):
        rows = [{"row": f"f32-dense-d64-T{t}", "ours": ours(1e-3), "rivals": [rival("torch SDPA", 2e-3)]} for t in (512, 2048)]
        page, plots = report(document(*rows))
        self.assertEqual(plots, ["performance-fraction.svg", "performance-time.svg"])
        for plot in plots:
            self.assertIn(f"]({plot})", page)
        self.assertEqual(report(document({"row": "pp512", "ours": ours(1.0, tokens_per_s=512.0), "rivals": []}))[1], [])

    def test_the_published_page_is_what_its_measurements_give(self):
        measured = ROOT / "docs/performance.json"
        if not measured.exists():
            self.skipTest("nothing is published")
        judged = ROOT / "docs/performance-goals.json"
        goals = json.loads(judged.read_text()) if judged.exists() else None
        self.assertEqual((ROOT / "docs/performance.md").read_text(), report(json.loads(measured.read_text()), goals)[0])

    def test_what_is_published_names_no_path_of_the_machine(self):
        def texts(value):
            if isinstance(value, str):
                yield value
            for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
                yield from texts(inner)
        # What other programs say of their own build is theirs, the path of their compiler too.
        theirs = re.compile(r"CXX_COMPILER=\S+")
        for name in ("performance.json", "performance-goals.json"):
            if (ROOT / "docs" / name).exists():
                for text in texts(json.loads((ROOT / "docs" / name).read_text())):
                    self.assertNotRegex(theirs.sub("", text), r"(^|[\s='\"(])/\w", name)

    def test_marks_that_fell_short_or_were_not_measured_are_shown(self):
        runs = [{"steady": i < 2} for i in range(5)]
        rows = [{"name": "f32-dense-d64-T512", "measured": True, "note": "", "limit": "f32 peak", "figure": 0.5,
                 "median_s": 1e-3, "runs": runs, "mark": ">= 0.86 (0.90)", "verdict": "SHORT"},
                {"name": "start-info", "measured": False, "note": "no model", "mark": "<= 0.3 s", "verdict": "not measured"}]
        counts = {"stretch": 0, "first": 0, "short": 1, "not_measured": 1, "without_row": ["bf16-dense-d64-*"]}
        goals = {"date": "2026-01-01", "commit": "abc", "command": "sightline bench --goals",
                 "report": {"marks": counts, "rows": rows}}
        page, _ = report(document(), goals)
        self.assertIn("| 0.5 of f32 peak | >= 0.86 (0.90) | **SHORT** | 2 of 5 |", page)
        self.assertIn("| no model | <= 0.3 s | **not measured** | |", page)
        self.assertIn("still to be written: `bf16-dense-d64-*`", page)
        self.assertIn("0 stretch, 0 first, 1 short, 1 not measured", page)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
