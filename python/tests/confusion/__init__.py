"""An implementation of attention in plain numpy with every observable fault planted by its own code.

Written from the definitions of the catalogue and sharing no code with the package that it judges; `declare` in
meaning.py is the only place that speaks the package's names. Run by tools/confusion and, reduced, by
test_confusion.py.
"""
