"""Records what the attention of a transformers model takes and gives, layer by layer, for `check` to read."""
import contextlib
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ._arrays import to_numpy
from ._declared import declared_spec
from ._report import _TYPES, diagnose


@dataclass
class Layer:
    """One layer's arrays, [batch, tokens, heads, dim] each, by call: unrotated q, k and v of new tokens, outputs.

    gradients  d_q, d_k, d_v and d_out by name, where a backward followed a single call inside the block
    """
    q: list = field(default_factory=list)
    k: list = field(default_factory=list)
    v: list = field(default_factory=list)
    out: list = field(default_factory=list)
    hidden: list = field(default_factory=list)
    gradients: dict = field(default_factory=dict)

    @property
    def length(self):
        """Tokens so far."""
        return sum(x.shape[1] for x in self.q)


class Dump:
    """What `record` has seen. The declared meaning is read from the model's config, never from its code.

    layers  Layer by index; `arrays` joins the calls
    dtype   what the attention computed in: "f32", "bf16", "f16" or "f64"
    """

    def __init__(self, config):
        self.config = config
        self.dtype = None
        self.layers = {}
        self._valid = None
        self._positions = []

    def spec(self, layer):
        """The AttentionSpec that the config declares for a layer. ValueError where it must be given."""
        q, k, v = (self.layers[layer].__dict__[name][0] for name in "qkv")
        return declared_spec(self.config, layer, num_q_heads=q.shape[2], num_kv_heads=k.shape[2],
                             qk_head_dim=q.shape[3], v_head_dim=v.shape[3], packed=self._segments() is not None)

    def arrays(self, layer):
        """Arrays of one layer by the names that `check` reads: q, k, v, out, call_begins."""
        seen = self.layers[layer]
        begins = np.cumsum([0] + [x.shape[1] for x in seen.q[:-1]])
        joined = {name: np.concatenate(seen.__dict__[name], 1) for name in ("q", "k", "v", "out")}
        return {**joined, "call_begins": begins}

    def tokens(self):
        """Coordinates of the tokens by name, [batch, tokens] each; only those that say more than the order."""
        tokens, segments = {}, self._segments()
        if self._valid is not None and not self._valid.all():
            tokens["valid"] = self._valid
        if segments is not None:
            tokens["segment"] = segments
        if self._positions:
            tokens["rope_pos"] = np.concatenate(self._positions, 1)
        return tokens

    def diagnose(self, layer, spec=None, first_row=0, dtype=None):
        """The Report of one layer: does its attention do what the config (or `spec`) declares?

        Sequences of equal padding and positions are the probes; two or more make a fault certain. Queries
        before row `first_row` (padding, a first call) are left out, their keys are not. Gradients are explained too
        where they were seen. `dtype` says what counts as rounding: by default that of the outputs.
        """
        arrays, tokens = self.arrays(layer), self.tokens()
        rows = self._alike(tokens)
        begins = sorted({max(int(x) - first_row, 0) for x in arrays["call_begins"]})
        own = {f"{side}_{name}": x[rows[0]][first_row if side == "q" else 0:]
               for name, x in tokens.items() if name != "valid" for side in ("q", "kv")}
        if "valid" in tokens:
            own["valid"] = tokens["valid"][rows[0]]
        given = {name: arrays[name][rows] for name in ("q", "k", "v", "out")}
        for name in ("q", "out"):
            given[name] = given[name][:, first_row:]
        gradients = self.layers[layer].gradients
        if len(arrays["call_begins"]) == 1 and first_row == 0 and {"d_out", "d_q", "d_k", "d_v"} <= set(gradients):
            given.update({name: x[rows] for name, x in gradients.items()})
        return diagnose(self.spec(layer) if spec is None else spec, call_begins=begins,
                        dtype=dtype or self.dtype,
                        **given, **own)

    def save(self, folder):
        """Writes one .npz a layer that `sightline check` reads, the declared spec beside it, and hidden.npz.

        Where sequences have padding or positions of their own, a file for each. Returns the paths of the layers.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tokens, paths = self.tokens(), []
        batch = next(iter(self.layers.values())).q[0].shape[0]
        together = len(self._alike(tokens)) == batch
        for layer in sorted(self.layers):
            arrays = self.arrays(layer)
            with contextlib.suppress(ValueError):  # a rotation that must be declared by hand
                (folder / f"layer{layer:02}.json").write_text(self.spec(layer).to_json())
            for row in range(1 if together else batch):
                name = f"layer{layer:02}.npz" if together else f"layer{layer:02}.sequence{row}.npz"
                part = {n: x if n == "call_begins" or together else x[row] for n, x in arrays.items()}
                for n, x in tokens.items():
                    part.update({n: x[row]} if n in ("valid", "segment") else {"q_" + n: x[row], "kv_" + n: x[row]})
                np.savez(folder / name, **part)
                paths.append(folder / name)
        hidden = {f"layer{i:02}": np.concatenate(seen.hidden, 1) for i, seen in self.layers.items() if seen.hidden}
        np.savez(folder / "hidden.npz", **hidden)
        return paths

    def _segments(self):
        """Documents, where positions restart; None where they do not."""
        if not self._positions or self._valid is not None:
            return None
        positions = np.concatenate(self._positions, 1)
        segments = np.cumsum(np.diff(positions, axis=1, prepend=positions[:, :1] - 1) != 1, axis=1)
        return segments if segments.any() else None

    def _alike(self, tokens):
        """Rows whose tokens are those of the first."""
        return [row for row in range(next(iter(self.layers.values())).q[0].shape[0])
                if all(np.array_equal(x[row], x[0]) for x in tokens.values())]


@contextlib.contextmanager
def record(model):
    """`with sl.record(model) as dump: model(ids)`: writes down what each layer's attention takes and gives.

    model  a transformers model whose layers use its attention interface, with any attn_implementation; calls may be a
           prefill and steps with a cache. q and k are taken before their rotation (apply_rotary_pos_emb of the
           model's own module), outputs after heads are computed and before they are projected

    Costs a copy of every array that is seen. Hooks and patches are gone when the block ends. ValueError at its end when
    no layer was seen.
    """
    import torch
    from transformers import AttentionInterface

    dump, pending = Dump(model.config.get_text_config()), []

    def of_model(module, args, kwargs):
        mask, positions = kwargs.get("attention_mask"), kwargs.get("position_ids")
        if isinstance(mask, torch.Tensor) and mask.ndim == 2:
            dump._valid = to_numpy(mask).astype(np.int64)
        if isinstance(positions, torch.Tensor):
            ids = args[0] if args else kwargs.get("input_ids", kwargs.get("inputs_embeds"))
            dump._positions.append(np.broadcast_to(to_numpy(positions), tuple(ids.shape[:2])).astype(np.int64))

    def rows(x):
        return np.array(to_numpy(x.detach().transpose(1, 2)))

    def keep_gradients(layer, tensors, turned):
        """Gradients of unrotated q and k, of v and of the output: 0 where the backward reaches none."""
        if not tensors[3].requires_grad or len(layer.q) != 1:
            return
        width = {"q": 0, "k": 0}

        def keep(name, begin, end):
            def hook(grad):
                # Outputs are [batch, tokens, heads, dim] already.
                grad = to_numpy(grad.detach() if name == "out" else grad.detach().transpose(1, 2))
                layer.gradients["d_" + name][..., begin:end] = grad[..., begin:end] if begin else grad
            return hook

        for name, x in zip(("q", "k", "v", "out"), tensors):
            layer.gradients["d_" + name] = np.zeros(rows(x).shape if name != "out" else tuple(x.shape), np.float32)
        if turned:
            for name, x in zip("qk", turned[-1]):
                width[name] = x.shape[-1]
                if x.requires_grad:
                    x.register_hook(keep(name, 0, width[name]))
        for name, x in zip(("q", "k", "v", "out"), tensors):
            begin = width.get(name, 0)
            if x.requires_grad and begin < x.shape[-1]:
                x.register_hook(keep(name, begin, x.shape[-1]))

    def watch(attend):
        def attention(module, query, key, value, attention_mask, **kwargs):
            given = (module, query, key, value, attention_mask)
            out = attend(*given, **kwargs)
            layer = dump.layers.setdefault(module.layer_idx, Layer())
            before, count = layer.length, query.shape[2]
            # Caches that keep a window give the last tokens; the others keep every token in its place.
            place = slice(before, before + count) if key.shape[2] >= before + count else slice(-count, None)
            q, k = query, key[:, :, place]
            if pending:
                turned_q, turned_k = pending[-1]
                q = torch.cat([turned_q, q[..., turned_q.shape[-1]:]], -1)
                k = torch.cat([turned_k, k[..., turned_k.shape[-1]:]], -1)
            for name, x in (("q", q), ("k", k), ("v", value[:, :, place])):
                layer.__dict__[name].append(rows(x))
            keep_gradients(layer, (query, key, value, out[0]), pending)
            layer.out.append(np.array(to_numpy(out[0].detach())))
            dump.dtype = _TYPES.get(str(out[0].dtype).removeprefix("torch."))
            pending.clear()
            return out

        return attention

    def watch_rotation(rotate):
        def apply_rotary_pos_emb(q, k, *args, **kwargs):
            pending[:] = [(q, k)]
            return rotate(q, k, *args, **kwargs)

        return apply_rotary_pos_emb

    def of_block(module, args, out):
        index = next(m.layer_idx for m in module.modules() if hasattr(m, "layer_idx"))
        dump.layers[index].hidden.append(np.array(to_numpy((out[0] if isinstance(out, tuple) else out).detach())))

    blocks = [b for m in model.modules() if isinstance(m, torch.nn.ModuleList) for b in m
              if any(hasattr(x, "layer_idx") for x in b.modules())]
    sources = {sys.modules[type(m).__module__] for m in model.modules()}
    find = AttentionInterface.get_interface
    with contextlib.ExitStack() as stack:
        stack.callback(setattr, AttentionInterface, "get_interface", find)
        AttentionInterface.get_interface = lambda self, *args: watch(find(self, *args))
        for source in sources:
            if hasattr(source, "apply_rotary_pos_emb"):
                stack.callback(setattr, source, "apply_rotary_pos_emb", source.apply_rotary_pos_emb)
                source.apply_rotary_pos_emb = watch_rotation(source.apply_rotary_pos_emb)
        stack.callback(model.register_forward_pre_hook(of_model, with_kwargs=True).remove)
        for block in blocks:
            stack.callback(block.register_forward_hook(of_block).remove)
        yield dump
    if not dump.layers:
        raise ValueError("record: no attention was seen; only transformers models that use its attention interface are")
