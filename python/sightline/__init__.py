"""Sightline: attention on CPUs, and what it means.

Arrays are [tokens, heads, dim], or [batch, tokens, heads, dim] with sequences of one length; key heads may be fewer
than query heads. Queries without positions are the last tokens of the keys.
"""
from . import reference
from ._attention import attention, attention_spec
from ._core import AttentionSpec
from ._mask import draw, why
from ._report import Fault, Report, diagnose

__all__ = ["AttentionSpec", "Fault", "Report", "attention", "attention_spec", "diagnose", "draw", "reference", "why"]
