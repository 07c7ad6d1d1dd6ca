"""Sightline: attention on CPUs, and what it means.

Arrays are [tokens, heads, dim], or [batch, tokens, heads, dim] with sequences of one length; key heads may be fewer
than query heads. Queries without positions are the last tokens of the keys.
"""
from . import reference
from ._attention import attention, attention_backward
from ._batch import check_batch
from ._check import assert_attention, check
from ._check_model import check_model
from ._core import AttentionSpec, RopeSpec
from ._endpoint import EndpointError, check_endpoint
from ._gradient import check_gradient
from ._kv_cache import KvCache
from ._loss import check_loss
from ._mask import draw, visible, why
from ._model_file import Generation, Logprob, Model
from ._prefix_cache import check_prefix_cache
from ._record import Dump, record
from ._report import Fault, Report, diagnose
from ._rope import rope, rope_frequencies
from ._spec import attention_spec, rope_spec

__all__ = ["AttentionSpec", "Dump", "EndpointError", "Fault", "Generation", "KvCache", "Logprob", "Model", "Report",
           "RopeSpec", "assert_attention", "attention", "attention_backward", "attention_spec", "check", "check_batch",
           "check_endpoint", "check_gradient", "check_loss", "check_model", "check_prefix_cache", "diagnose", "draw",
           "record", "reference", "rope", "rope_frequencies", "rope_spec", "visible", "why"]
