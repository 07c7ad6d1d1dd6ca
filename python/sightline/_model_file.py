"""Models from files: logits, log-probabilities, text."""
import json
from dataclasses import dataclass

import numpy as np

from ._core import AttentionSpec
from ._report import report_from

try:
    from . import _model
except ImportError as error:  # a wheel of the core alone
    _model, _reason = None, "" if "cannot import name" in str(error) else f" ({error})"


@dataclass(frozen=True)
class Logprob:
    """Natural log-probability of one token given all before it; None for the first of a text.

    `text` are the token's bytes, which may be part of a character; `top` the likeliest as (id, logprob).
    """
    id: int
    text: bytes
    logprob: object
    top: list


@dataclass(frozen=True)
class Generation:
    """What came after one prompt.

    text      of the new tokens (after the prompt's under echo), special tokens left out
    ids       new tokens, an end token included; prompt_ids: those before them
    reason    "end", "stop", "length" or "context"
    logprobs  a Logprob for each token when num_logprobs was given, else empty
    """
    text: str
    ids: list
    prompt_ids: list
    reason: str
    logprobs: list


class Model:
    """A decoder from a GGUF file or a Hugging Face folder, run by the engine.

    path         the file or folder; families: `sightline info` and README
    num_threads  0: all cores
    matmul       arithmetic of the linear layers: "f32" (weights dequantised at load, what diagnose compares against),
                 "bf16", or "native": each tensor as it is stored, quantised ones in int8 dot products with activations
                 quantised per token and block of 32 (faster, and another rounding)

    Results have the same bits for any batch, chunking and thread count. Calls from several threads wait for each
    other, with the interpreter's lock free. ValueError for files that are malformed or say what is not known,
    with the text of `sightline`; ImportError when the package was built without cargo.
    """

    def __init__(self, path, *, num_threads=0, matmul="f32"):
        if _model is None:
            raise ImportError("this build of the package sightline has no Model: it was built without cargo, which "
                              f"the tokenizer needs; install cargo 1.85 or newer and reinstall{_reason}")
        self._model = _model.Model(str(path), num_threads, matmul)

    @property
    def info(self):
        """What `sightline info --json` says: spec, assumptions made while loading, tensor types, sizes."""
        return json.loads(self._model.info())

    @property
    def attention_specs(self):
        """The AttentionSpec of each layer."""
        return [AttentionSpec.from_json(text) for text in self._model.attention_specs()]

    @property
    def vocab_size(self):
        """Token ids are 0 to vocab_size - 1."""
        return self._model.vocab_size

    @property
    def context_length(self):
        """Tokens that the model was trained for."""
        return self._model.context_length

    def encode(self, text, *, add_special=True, parse_special=False):
        """Token ids of a text; parse_special: names of control tokens in it are those tokens."""
        return self._model.encode(text, add_special, parse_special)

    def decode(self, ids, *, skip_special=True):
        """The text of token ids; bytes that are no UTF-8 become U+FFFD."""
        return self._model.decode(list(ids), skip_special)

    def logits(self, tokens, *, chunk=512):
        """[tokens, vocab_size] f32: row i predicts token i + 1. A list of texts or id lists gives a list of arrays.

        tokens  a text, or its ids
        chunk   tokens of one forward; changes no bit
        """
        return self._each(tokens, lambda ids: self._model.logits(ids, chunk))

    def log_probs(self, tokens):
        """[tokens - 1] float64: the natural log-probability of each token but the first, given all before it.

        tokens: a text, its ids, or a list of either, which gives a list of arrays. At least two tokens.
        """
        return self._each(tokens, self._model.log_probs)

    def generate(self, prompt, *, max_tokens=128, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0,
                 repetition_penalty=1.0, seed=0, stop=(), num_logprobs=None, echo=False, ignore_end=False):
        """Generation after a prompt; a list of prompts gives a list, from one mixed batch.

        prompt        a text or its ids; what comes after it does not depend on the others
        temperature   0: the likeliest token; then top_k, top_p, min_p and repetition_penalty as in llama.cpp
        stop          a text, or several, before which to end
        num_logprobs  None, or how many of the likeliest tokens to report beside each token's own log-probability
        """
        many = self._is_many(prompt)
        ids = [self._ids(p) for p in (prompt if many else [prompt])]
        stop = [stop] if isinstance(stop, str) else list(stop)
        asked = _model.Asked(max_tokens, temperature, top_k, top_p, min_p, repetition_penalty, seed, stop,
                             num_logprobs, echo, ignore_end)
        out = [Generation(**{**g, "logprobs": [Logprob(*entry) for entry in g["logprobs"]]})
               for g in self._model.generate(ids, asked)]
        return out if many else out[0]

    def diagnose(self, tokens, logprobs, *, chunk=0, tolerance=2e-3, their_types=None, reproducer=""):
        """Explains log-probabilities that another program gave for the same model file: a Report.

        tokens     a text, its ids, or a list of either
        logprobs   natural log-probability of each token but the first; a list of arrays for a list of texts. None
                   where the first ones are not known
        chunk      tokens of one of its forwards; 0: all at once
        tolerance  nats by which rounding of f32 may move one
        their_types  what the program rounds where that is more: "llama.cpp" (what that program does to this file
                   on a CPU), or the types of what its matrix products read and of its cache, such as "q8/f16"
                   (f32, bf16, f16, q8, q8_k); how far that moves each number is then measured, see docs/check.md

        Faults are those that the engine can run, with their parameters measured; two texts make a name certain.
        """
        many = self._is_many(tokens)
        texts = [self._ids(t) for t in (tokens if many else [tokens])]
        rows = [[None if x is None else float(x) for x in row] for row in (logprobs if many else [logprobs])]
        return report_from(*self._model.diagnose(texts, rows, chunk, tolerance, their_types or "", reproducer))

    def _ids(self, tokens):
        return self.encode(tokens) if isinstance(tokens, str) else [int(x) for x in tokens]

    @staticmethod
    def _is_many(tokens):
        return not isinstance(tokens, str) and len(tokens) > 0 and (
            isinstance(tokens[0], str) or np.ndim(tokens[0]) > 0)

    def _each(self, tokens, function):
        if self._is_many(tokens):
            return [function(self._ids(t)) for t in tokens]
        return function(self._ids(tokens))
