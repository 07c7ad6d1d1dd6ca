"""The blocks of docs/python.md that need torch."""
from test_docs import run


def test_every_torch_block_runs():
    assert run("python torch", {"sl": __import__("sightline")}) >= 4
