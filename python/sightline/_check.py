"""check: drives a Python callable with probes."""
import contextlib
import inspect
import signal
import threading

import numpy as np

from . import _core
from ._arrays import is_torch, real_numbers, to_numpy
from ._report import report_from
from ._spec import attention_spec

_LAYOUTS = {"thd": (0, 1, 2), "htd": (1, 0, 2), "bthd": (0, 1, 2), "bhtd": (1, 0, 2)}
_TORCH_TYPES = {"f32": "float32", "f64": "float64", "bf16": "bfloat16", "f16": "float16"}
_GRADIENTS = {"d_q": "q", "d_k": "k", "d_v": "v"}


class Callable:
    """A function as the compiled module asks it: arrays in its own layout, type and framework, answers as float64."""

    def __init__(self, fn, layout, dtype, framework, timeout, batch):
        if layout not in _LAYOUTS:
            raise ValueError(f"layout is {layout!r}, expected one of {', '.join(_LAYOUTS)}")
        if framework not in ("numpy", "torch"):
            raise ValueError(f"framework is {framework!r}, expected numpy or torch")
        if dtype not in _TORCH_TYPES:
            raise ValueError(f"dtype is {dtype!r}, expected one of {', '.join(_TORCH_TYPES)}")
        if batch and not layout.startswith("b"):
            raise ValueError(f"batch=True needs a layout with a batch, got {layout!r}")
        self.fn, self.layout, self.dtype, self.framework, self.timeout = fn, layout, dtype, framework, timeout
        self.batch = batch
        self.takes = _parameters(fn)

    def _outwards(self, rows):
        """[tokens, heads, dim] of each row as the function wants it."""
        rows = [np.ascontiguousarray(x.transpose(_LAYOUTS[self.layout])) for x in rows]
        x = np.stack(rows) if self.layout.startswith("b") else rows[0]
        if self.framework == "torch":
            import torch

            return torch.from_numpy(x).to(getattr(torch, _TORCH_TYPES[self.dtype]))
        if self.dtype == "bf16":
            import ml_dtypes

            return x.astype(ml_dtypes.bfloat16)
        return x.astype({"f32": np.float32, "f64": np.float64, "f16": np.float16}[self.dtype])

    def _inwards(self, x, name, num_rows):
        """The function's array as [tokens, heads, dim], flat, of each row."""
        x = real_numbers(x, name)
        if self.layout.startswith("b"):
            if x.ndim != 4 or x.shape[0] != num_rows:
                raise ValueError(f"{name} has shape {list(x.shape)}, expected [{num_rows}, ...] in the layout "
                                 f"{self.layout}")
        elif x.ndim != 3:
            raise ValueError(f"{name} has shape {list(x.shape)}, expected the layout {self.layout}")
        else:
            x = x[None]
        return [np.ascontiguousarray(row.transpose(_LAYOUTS[self.layout])).reshape(-1) for row in x]

    def _other(self, questions, name):
        """An argument beside q, k and v; of every row where the function was declared to take a batch."""
        x = [question[name] for question in questions]
        if name in ("is_self_attention", "draft_parents"):
            return x[0]  # the same of all rows
        x = np.stack(x) if self.batch else x[0]
        if name == "mask":
            x = x.astype(bool)
        if self.framework == "torch":
            import torch

            x = torch.from_numpy(x)
        return x

    def ask(self, question):
        return self.ask_batch([question])[0]

    def ask_batch(self, questions):
        """The answers to questions of equal shapes, asked in one call."""
        first, num_rows = questions[0], len(questions)
        q, k, v = (self._outwards([question[name] for question in questions]) for name in "qkv")
        shape = {name: first[name].shape for name in "qkv"}
        by_autograd = "d_out" in first and self.framework == "torch" and "d_out" not in self.takes
        if by_autograd:
            for x in (q, k, v):
                x.requires_grad_(True)
        more = {name: self._other(questions, name) for name in self.takes
                if name in first and name not in ("q", "k", "v", "d_out")}
        d_out = self._outwards([question["d_out"] for question in questions]) if "d_out" in first else None
        if "d_out" in self.takes and d_out is not None:
            more["d_out"] = d_out
        with _alarm(self.timeout):
            got = self.fn(q, k, v, **more)
            if not isinstance(got, dict):
                got = dict(zip(("out", "lse"), got)) if isinstance(got, tuple) else {"out": got}
            if by_autograd and is_torch(got["out"]) and got["out"].requires_grad:
                got["out"].backward(d_out)
                got.update({d: x.grad for d, x in zip(_GRADIENTS, (q, k, v)) if x.grad is not None})
        answers = [{"out": row} for row in self._inwards(got["out"], "out", num_rows)]
        if answers[0]["out"].size != shape["q"][0] * shape["q"][1] * shape["v"][2]:
            raise ValueError(f"out has shape {list(np.shape(to_numpy(got['out'])))}, expected {shape['q'][0]} tokens, "
                             f"{shape['q'][1]} heads of {shape['v'][2]} in the layout {self.layout}")
        if got.get("lse") is not None:
            lse = to_numpy(got["lse"]).astype(np.float64).reshape(num_rows, *_lse_shape(self.layout, shape["q"]))
            for answer, row in zip(answers, lse):
                answer["lse"] = np.ascontiguousarray(row.T if _LAYOUTS[self.layout][0] else row).reshape(-1)
        if got.get("weights") is not None:
            weights = np.ascontiguousarray(to_numpy(got["weights"]).astype(np.float64)).reshape(num_rows, -1)
            for answer, row in zip(answers, weights):
                answer["weights"] = row
        for name in _GRADIENTS:
            if got.get(name) is not None:
                for answer, row in zip(answers, self._inwards(got[name], name, num_rows)):
                    answer[name] = row
        return answers


def _lse_shape(layout, q_shape):
    """[heads, tokens] where heads come first, else [tokens, heads]."""
    return (q_shape[1], q_shape[0]) if _LAYOUTS[layout][0] else (q_shape[0], q_shape[1])


def _parameters(fn):
    """Names of the arguments that a function takes beside q, k and v; all that a question has for **kwargs."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return ()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return tuple(names[3:]) if len(names) >= 3 else ()


@contextlib.contextmanager
def _alarm(seconds):
    """TimeoutError in this thread after `seconds`; nothing where signals cannot be used."""
    usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not usable or not seconds:
        yield
        return

    def too_late(signum, frame):
        raise TimeoutError(f"no answer within {seconds:g} s: it hangs")

    old = signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def _traits(takes, framework):
    any_of = lambda *names: any(name in takes for name in names)  # noqa: E731
    told = any_of("mask")
    # Queries are the newest rows, so keys tell of them; queries alone would say nothing of where keys stand.
    return {"takes_positions": any_of("kv_pos", "kv_rope_pos"),
            "takes_segments": told or any_of("kv_segment"),
            "takes_padding": told or any_of("kv_valid"),
            "takes_drafts": any_of("draft_parents") or (told and any_of("kv_pos", "kv_rope_pos")),
            "takes_gradients": framework == "torch" or any_of("d_out")}


def check(fn, spec="causal", *, num_q_heads=6, num_kv_heads=2, head_dim=16, v_head_dim=None, rope="none", theta=10000.0,
          layout="thd", framework="numpy", dtype="f32", batch=False, chunks=True, cache_bytes_per_token=0, num_tokens=0,
          seed=1, budget=60.0, timeout=30.0, follows=""):
    """Asks `fn` what `spec` means, and says what its answers are: a Report.

    fn          fn(q, k, v, ...) -> out, (out, lse), or a dict of out, lse, weights, d_q, d_k, d_v. q, k and v come
                before rotation; keys are those of the whole sequence so far, and queries without positions are the
                newest. It is given by name whatever else it has parameters for: mask (bool [q_len, kv_len], the
                declared one), q_pos, kv_pos, q_rope_pos, kv_rope_pos, q_segment, kv_segment, q_segment_start,
                kv_segment_start, q_span, kv_span, q_flags, kv_flags, q_valid, kv_valid, is_self_attention, d_out,
                draft_parents (of the drafts, which are the newest tokens; for masks that say tree).
                What it is not told is not asked: positions other than 0, 1, 2, ... need kv_pos or kv_rope_pos,
                documents kv_segment or mask, padding kv_valid or mask
    spec        an AttentionSpec, or the text of a mask with the sizes and the rotation of the next options
    layout      of q, k, v and out: "thd", "htd", "bthd" or "bhtd" (tokens, heads, dim, a batch of 1)
    batch       True: `fn` takes several rows at once, and what it is given by name has a batch in front, too
                (q_pos [batch, q_len], mask [batch, q_len, kv_len]); rows must then answer what each answers alone
    framework   "numpy", or "torch": tensors, and gradients by autograd
    dtype       "f32", "bf16", "f16" or "f64": of the inputs, and what counts as rounding
    chunks      False: always as many queries as keys
    cache_bytes_per_token
                what one layer's cache of `fn` grows by with a token: keys stored once for each query head show in
                nothing else; 0: not told
    num_tokens  of a probe; 0: what the mask needs
    budget      seconds after which nothing more is asked; 0: no end
    timeout     seconds of one call, on the main thread
    follows     "torch", "onnx", "flash_attn" or "jax": what that library documents is a convention, no fault

    An exception, a timeout, other shapes, NaN without a cause, or other answers each time give the verdict `broken`.
    ValueError for options that do not fit, TypeError for what cannot be called.
    """
    if isinstance(spec, str):
        spec = attention_spec(num_q_heads=num_q_heads, num_kv_heads=num_kv_heads, qk_head_dim=head_dim,
                              v_head_dim=v_head_dim, mask=spec, rope=rope, theta=theta)
    if not callable(fn):
        raise TypeError(f"check asks a function, got {type(fn).__name__}")
    if not 0 <= cache_bytes_per_token < float("inf"):
        raise ValueError(f"cache_bytes_per_token is {cache_bytes_per_token}, expected bytes, 0 for not told")
    if not 0 <= budget < float("inf"):
        raise ValueError(f"budget is {budget}, expected seconds, 0 for no end")
    subject = Callable(fn, layout, dtype, framework, timeout, batch)
    traits = {**_traits(subject.takes, framework), "takes_chunks": chunks, "takes_batch": batch,
              "cache_bytes_per_token": float(cache_bytes_per_token)}
    reproducer = _call(fn, spec, layout, framework, dtype, batch, chunks, cache_bytes_per_token, num_tokens, seed,
                       follows)
    return report_from(*_core.check(subject.ask, subject.ask_batch, spec, traits, type=dtype, num_tokens=num_tokens,
                                    seed=seed, budget=float(budget), follows=follows, reproducer=reproducer))


def _call(fn, spec, *options):
    """The call that gives this report again, as code."""
    name = getattr(fn, "__qualname__", None) or repr(fn)
    names = ("layout", "framework", "dtype", "batch", "chunks", "cache_bytes_per_token", "num_tokens", "seed", "follows")
    given = ", ".join(f"{n}={x!r}" for n, x in zip(names, options))
    return (f"import sightline as sl\n\nspec = sl.AttentionSpec.from_json({spec.to_json()!r})\n"
            f"sl.check({name}, spec, {given})")


def assert_attention(fn, mask="causal", **options):
    """AssertionError with the whole report unless `fn` is what was declared; options as in `check`."""
    report = check(fn, mask, **options)
    assert report.ok, str(report)
