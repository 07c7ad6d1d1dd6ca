"""The blocks of docs/python.md and of the README that need torch."""
from test_docs import ROOT, blocks, run


def test_every_torch_block_runs():
    assert run("python torch", {"sl": __import__("sightline")}) >= 4


def test_the_torch_block_of_the_readme_prints_what_it_says(capsys):
    text = (ROOT / "README.md").read_text()
    (_, source), = blocks(text, "python torch")
    exec(compile(source, "README.md", "exec"), {})
    said = text[text.index(source):].split("```text\n", 1)[1].split("```", 1)[0]
    assert capsys.readouterr().out == said
