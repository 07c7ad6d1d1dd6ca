"""Sightline as an attention implementation of Hugging Face transformers 5: `attn_implementation="sightline"`.

    import sightline.transformers
    sightline.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="sightline")

The mask functions that transformers composes become rules: causal, windows, chunks, packed documents, blocks, padding.
They cost memory for tokens, not for pairs. Only what has no rule is evaluated to a matrix. Models rotate q and k
themselves, so nothing is rotated here.
"""
import numpy as np
import torch
from torch.utils._pytree import tree_map
from transformers import AttentionInterface, AttentionMaskInterface
from transformers import masking_utils

from ._mask import visible
from .torch import Mask
from .torch import attention as torch_attention

__all__ = ["RuleMask", "attention_forward", "attention_mask", "register"]


def register(name="sightline"):
    """Makes `attn_implementation=name` known to every model that uses the attention interface."""
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, attention_mask)


def attention_forward(module, query, key, value, attention_mask, scaling=None, dropout=0.0, softcap=None, s_aux=None,
                      position_bias=None, is_causal=None, **kwargs):
    """One layer's attention as transformers calls it: [batch, heads, tokens, dim] in, [batch, tokens, heads, dim] out.

    attention_mask  what `attention_mask` made, a 4-D matrix (bool, or finite numbers that stand for hidden), or None:
                    causal by the module's own word, queries being the last tokens
    scaling, softcap, s_aux, position_bias
                    softmax scale, logit softcap, sink logits, additive bias; the last two with gradients

    Returns (output, None): weights are not kept. ValueError for dropout of weights, which has no place here.
    """
    if dropout:
        raise ValueError(f"attention dropout {dropout} is not to be had: set the config's attention dropout to 0")
    more = {"softmax_scale": scaling, "logit_softcap": softcap or 0.0, "sink_logits": s_aux, "bias": position_bias}
    if attention_mask is None:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        mask = "causal" if causal else "all"
        if not causal:
            more["q_pos"] = range(query.shape[2])
    elif isinstance(attention_mask, RuleMask):
        mask = attention_mask.mask
    elif attention_mask.dtype == torch.bool:
        mask, more["dense"], more["q_pos"] = "all", attention_mask, range(query.shape[2])
    else:  # an additive matrix: numbers near the type's least stand for hidden
        hidden = attention_mask <= torch.finfo(attention_mask.dtype).min / 2
        added = attention_mask.masked_fill(hidden, -torch.inf)
        more["bias"] = added if position_bias is None else position_bias + added
        mask, more["q_pos"] = "all", range(query.shape[2])
    return torch_attention(query, key, value, mask, **more).transpose(1, 2).contiguous(), None


def attention_mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0,
                   mask_function=masking_utils.causal_mask_function, attention_mask=None, **kwargs):
    """The RuleMask of one kind of layer, from the arguments with which transformers asks for masks.

    Positions are indices in the cache, which order tokens as their positions do; padding is not valid.
    """
    q_idx = np.arange(q_length) + int(q_offset)
    kv_idx = np.arange(kv_length) + int(kv_offset)
    tokens = {"q_pos": q_idx, "kv_pos": kv_idx}
    padding = masking_utils.prepare_padding_mask(attention_mask, kv_length, int(kv_offset))
    if padding is not None:
        tokens["valid"] = padding[:, kv_idx].to(torch.int64).numpy().reshape(-1)
    rules = _Rules(batch_size, q_idx, kv_idx)
    text = rules.of(mask_function)
    if text is not None:
        return RuleMask(Mask(text, {**tokens, **rules.tokens}), (batch_size, 1, q_length, kv_length))
    dense = masking_utils.sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function,
                                    attention_mask, allow_is_causal_skip=False, use_vmap=kwargs.get("use_vmap", False))
    return RuleMask(Mask("dense", tokens, dense.numpy()), (batch_size, 1, q_length, kv_length))


class RuleMask(torch.Tensor):
    """A bool tensor [batch, 1, q_len, kv_len] of one stored number, which carries `mask`.

    transformers passes masks on as tensors and may ask their shape. Code that computes with one gets the matrix that
    the rules say, pair by pair.
    """
    _GETTERS = {getattr(torch.Tensor, name).__get__ for name in ("shape", "ndim", "dtype", "device", "requires_grad")}
    _GETTERS |= {torch.Tensor.size, torch.Tensor.dim}

    @staticmethod
    def __new__(cls, mask, shape):
        self = torch.ones((), dtype=torch.bool).expand(shape).as_subclass(cls)
        self.mask = mask
        return self

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            if function not in cls._GETTERS:
                args, kwargs = tree_map(lambda x: x.matrix() if isinstance(x, cls) else x, (args, kwargs or {}))
            return function(*args, **(kwargs or {}))

    def matrix(self):
        """The plain bool tensor that the rules say."""
        batch, _, q_len, kv_len = self.shape
        if self.mask.dense is not None:
            return torch.from_numpy(self.mask.dense)
        each = []
        for b in range(batch):
            own = {}
            for name, x in self.mask.tokens.items():
                count = q_len if name.startswith("q_") else kv_len
                own[name] = x if x.size == count else x.reshape(batch, count)[b]
            each.append(visible(self.mask.mask, **own))
        return torch.from_numpy(np.stack(each))[:, None]


class _Rules:
    """Puts a composed mask function of transformers into rules; `tokens` are the arrays they need."""

    def __init__(self, batch, q_idx, kv_idx):
        self.batch, self.q_idx, self.kv_idx = batch, q_idx, kv_idx
        self.tokens, self.placed = {}, set()

    def of(self, function):
        """The text of the rules, or None where a part is not known or needs what another part has taken."""
        if function is masking_utils.causal_mask_function:
            return self._by_position("causal")
        if function is masking_utils.bidirectional_mask_function:
            return "all"
        if getattr(function, "__module__", "") != masking_utils.__name__:
            return None
        kind = function.__qualname__.split(".")[0]
        part = dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__ or ())))
        if kind in ("and_masks", "or_masks"):
            parts = [self.of(f) for f in part["mask_functions"]]
            if None in parts:
                return None
            return "(" + (" & " if kind == "and_masks" else " | ").join(parts) + ")"
        if kind == "sliding_window_overlay":
            return self._by_position(f"window({part['sliding_window']})")
        if kind == "sliding_window_bidirectional_overlay":
            size = part["sliding_window"]
            return self._by_position(f"(window({size + 1}) & ahead({size}))")
        if kind == "chunked_overlay":
            begin = part["left_padding"].numpy()[:, None]
            return self._columns("segment", *((idx - begin) // part["chunk_size"] for idx in (self.q_idx, self.kv_idx)))
        if kind == "packed_sequence_mask_function":
            ids = part["packed_sequence_mask"].numpy()
            return self._columns("segment", ids[:, self.q_idx], ids[:, self.kv_idx])
        if kind == "blockwise_overlay":
            ids = part["block_sequence_ids"].numpy() + 1  # -1, no block, is span 0
            return self._columns("span", ids[:, self.q_idx], ids[:, self.kv_idx])
        if kind == "remap_positions_for_packed_sequence":
            ids = part["position_ids"].numpy()
            inner = _Rules(self.batch, self.q_idx, self.kv_idx)
            text = inner.of(part["mask_function"])
            if text is None or inner.tokens:
                return None
            return self._columns("pos", ids[:, self.q_idx], ids[:, self.kv_idx]) and text
        return None

    def _by_position(self, text):
        if "pos" in self.placed:
            return None
        self.placed.add("index")
        return text

    def _columns(self, name, q, kv):
        """One use of a kind of array; a second one, or spans beside documents, would need another meaning."""
        taken = {"segment", "span"} if name in ("segment", "span") else {"pos", "index"}
        if taken & self.placed:
            return None
        self.placed.add(name)
        shapes = (self.batch, len(self.q_idx)), (self.batch, len(self.kv_idx))
        for side, ids, shape in zip(("q", "kv"), (q, kv), shapes):
            self.tokens[f"{side}_{name}"] = np.ascontiguousarray(np.broadcast_to(ids, shape)).reshape(-1)
        return name
