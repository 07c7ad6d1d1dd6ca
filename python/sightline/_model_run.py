"""Runs a torch causal language model in any cut: whole, in calls on its cache, padded, in float64. Judges nothing."""
import contextlib
import inspect

import numpy as np

NARROW = ("float16", "bfloat16", "float32")


class ModelRun:
    """One model and how it wants to be called.

    takes   names of the parameters of its forward
    cache   what it calls a cache, or None
    """

    def __init__(self, model):
        self.model = model
        parameters = inspect.signature(model.forward).parameters
        self.takes = set(parameters)
        self.takes_more = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self.cache = next((name for name in ("cache", "past_key_values") if name in self.takes), None)
        if self.cache is None and self.takes_more:
            self.cache = "past_key_values"

    def __call__(self, ids, **options):
        """What the model answers, without a cache unless asked for."""
        if "use_cache" in self.takes:
            options.setdefault("use_cache", False)
        return self.model(input_ids=ids, **{name: x for name, x in options.items() if x is not None})

    def logits(self, ids, **options):
        """[rows, tokens, vocabulary], no gradient."""
        import torch

        with torch.no_grad():
            return self(ids, **options).logits

    def step(self, ids, cache=None, **options):
        """(logits, cache) of one call on a cache. ValueError where the model returns none."""
        import torch

        if cache is not None:
            options[self.cache] = cache
        with torch.no_grad():
            out = self(ids, use_cache=True, **options)
        cache = next((getattr(out, name) for name in ("cache", "past_key_values")
                      if getattr(out, name, None) is not None), None)
        if cache is None:
            raise ValueError("the model returns no cache")
        return out.logits, cache

    def cached(self, ids, chunks, mask=None, positions=None):
        """Logits of `ids` in calls of so many tokens each, on one cache."""
        import torch

        parts, cache, begin = [], None, 0
        for count in chunks:
            end = begin + count
            options = {}
            if mask is not None:
                options["attention_mask"] = mask[:, :end]
            if positions is not None:
                options["position_ids"] = positions[:, begin:end]
            logits, cache = self.step(ids[:, begin:end], cache, **options)
            parts.append(logits)
            begin = end
        return torch.cat(parts, 1)


def floats(model):
    """(holder, name, tensor) of every parameter and buffer of floating point, shared ones once."""
    seen = set()
    for module in model.modules():
        for kind in (module._parameters, module._buffers):
            for name, x in kind.items():
                if x is not None and x.is_floating_point() and id(x) not in seen:
                    seen.add(id(x))
                    yield kind, name, x


def _wide_mode():
    import torch
    from torch.overrides import TorchFunctionMode

    narrow = {getattr(torch, name) for name in NARROW}
    casts = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}

    class Wide(TorchFunctionMode):
        """Casts to a narrower type, which norms and softmax of transformers have, become casts to float64."""

        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func in casts:
                return args[0].double()
            wide = [torch.float64 if isinstance(x, torch.dtype) and x in narrow else x for x in args]
            more = {n: torch.float64 if isinstance(x, torch.dtype) and x in narrow else x
                    for n, x in (kwargs or {}).items()}
            return func(*wide, **more)

    return Wide()


@contextlib.contextmanager
def in_float64(model):
    """The model computes in float64 throughout; afterwards it holds the very tensors that it had."""
    import torch

    kept, grads = [], []
    default = torch.get_default_dtype()
    try:
        for kind, name, x in floats(model):
            if isinstance(x, torch.nn.Parameter):
                grads.append((x, x.grad, x.data))
                x.grad = None
                x.data = x.data.double()
            else:
                kept.append((kind, name, x))
                kind[name] = x.double()
        torch.set_default_dtype(torch.float64)
        with _wide_mode():
            yield
    finally:
        torch.set_default_dtype(default)
        for kind, name, x in kept:
            kind[name] = x
        for x, grad, data in grads:
            x.grad = None
            x.data = data
            x.grad = grad


@contextlib.contextmanager
def evaluating(model):
    """eval(), and afterwards each module as it was."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def random_draws(model, ids):
    """[(module, function, rate)] of the random draws of one call: dropout that is on, and what else draws."""
    import torch
    from torch.overrides import TorchFunctionMode

    names = {module: name for name, module in model.named_modules()}
    stack, draws = [], []
    others = {"rand", "randn", "bernoulli", "bernoulli_", "rand_like", "randn_like", "multinomial", "normal_",
              "uniform_", "randperm", "randint"}

    class Spy(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            name = getattr(func, "__name__", "")
            where = stack[-1] if stack else ""
            if "dropout" in name and name != "scaled_dot_product_attention":
                rate = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
                on = kwargs.get("training", args[2] if len(args) > 2 else True)
                if on and rate:
                    draws.append((where, name, float(rate)))
            elif name == "scaled_dot_product_attention":
                rate = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)
                if rate:
                    draws.append((where, name, float(rate)))
            elif name in others:
                draws.append((where, name, float("nan")))
            return func(*args, **kwargs)

    def leave(module, args, out):
        stack.pop()

    hooks = []
    for module in model.modules():
        hooks.append(module.register_forward_pre_hook(lambda m, args: stack.append(names[m])))
        hooks.append(module.register_forward_hook(leave, always_call=True))
    try:
        with Spy(), torch.no_grad():
            model(input_ids=ids)
    finally:
        for hook in hooks:
            hook.remove()
    return list(dict.fromkeys(draws))


def random_ids(config, rows, tokens, rng, below=None):
    """[rows, tokens] of the vocabulary without its special tokens, numpy int64."""
    size = min(config.vocab_size, below or config.vocab_size)
    special = set()
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "image_token_id"):
        x = getattr(config, name, None)
        special.update(x if isinstance(x, (list, tuple)) else [x])
    usable = np.array([i for i in range(size) if i not in special])
    return usable[rng.integers(0, len(usable), (rows, tokens))]
