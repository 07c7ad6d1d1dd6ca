"""Every block of docs/python.md runs, in order, in one namespace; those marked `torch` run in foreign/."""
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "python.md"


def blocks(text, mark):
    """(line, source) of the fenced blocks of one kind."""
    for found in re.finditer(r"^```" + mark + r"\n(.*?)^```", text, re.M | re.S):
        yield text[:found.start()].count("\n") + 2, found.group(1)


def run(mark, namespace):
    """Runs the blocks; lines that end in `# -> TEXT` must print TEXT."""
    count = 0
    for line, source in blocks(PAGE.read_text(), mark):
        exec(compile("\n" * (line - 1) + source, str(PAGE), "exec"), namespace)
        count += 1
    return count


def test_every_block_runs(capsys):
    assert run("python", {}) >= 5
    printed = capsys.readouterr().out
    for expected in re.findall(r"^```text\n(.*?)^```", PAGE.read_text(), re.M | re.S):
        assert expected in printed, printed


def test_the_python_block_of_the_readme_prints_what_it_says(capsys):
    text = (ROOT / "README.md").read_text()
    (_, source), = blocks(text, "python")
    exec(compile(source, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    said = text[text.index(source):].split("```text\n", 1)[1].split("```", 1)[0]
    assert printed == said


def test_every_public_name_is_on_the_page_and_has_a_docstring():
    import sightline as sl

    text = PAGE.read_text()
    missing = [name for name in sl.__all__ if f"sl.{name}" not in text]
    assert not missing
    for name in sl.__all__:
        assert getattr(sl, name).__doc__, name
    for kind in (sl.AttentionSpec, sl.RopeSpec, sl.KvCache, sl.Model, sl.Dump):
        for name in (n for n in dir(kind) if not n.startswith("_")):
            assert getattr(kind, name).__doc__, (kind, name)
