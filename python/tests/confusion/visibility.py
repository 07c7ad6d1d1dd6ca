"""A. Who may read whom, planted from the definitions of the catalogue."""
import dataclasses

import numpy as np

from .attention import Attention
from .meaning import Tokens, evaluate, exchange, rules, size_of
from .registry import Planted, plants

ANY = ("causal", "window", "segment", "chunk", "span")


@plants("mask.top_left_alignment", masks=("causal", "window"), prefix=True)
class TopLeft(Planted, Attention):
    """The triangle is built square from row 0 of the call: row i of a call sees keys as token i would."""

    def visible(self, call):
        kv = self.held_tokens(call)
        rows = dataclasses.replace(call.tokens, pos=self.m.kv.pos[0] + np.arange(call.num_queries))
        return (evaluate(self.m.mask, rows, kv) & kv.valid[None, :])[None]


class OtherMask(Planted, Attention):
    """Another mask than the declared one in every call."""

    def other(self):
        return self.m.mask

    def mask(self, call):
        return self.other()


@plants("mask.causal_dropped", masks=("causal", "segment", "chunk"))
class CausalDropped(OtherMask):
    def other(self):
        return exchange(self.m.mask, "causal", lambda leaf: ("all",))


@plants("mask.causal_dropped", "beside a window", masks=("window",))
class CausalDroppedBesideWindow(CausalDropped):
    pass


@plants("mask.causal_dropped", "where there is padding", masks=("causal",), pads=3, prefix=False)
class CausalDroppedWithPads(CausalDropped):
    """A padding mask turns causality off."""


@plants("mask.causal_dropped", "where there is a bias", masks=("causal",), bias=True)
class CausalDroppedWithBias(CausalDropped):
    """An additive mask takes the place of the triangle."""


@plants("mask.composition", "bias ignored", bias=True, masks=ANY)
class BiasIgnored(Planted, Attention):
    def added(self, call):
        return np.zeros((1, 1, len(self.held)))


@plants("mask.composition", "rule ignored", masks=("chunk", "first"))
class RuleIgnored(OtherMask):
    """Of two masks that should both hold (or of which either lets pass) only the first counts."""

    def other(self):
        if "chunk" in rules(self.m.mask):
            return exchange(self.m.mask, "chunk", lambda leaf: ("all",))
        return exchange(self.m.mask, "first", lambda leaf: ("none",))


@plants("mask.composition", "united", masks=("window", "segment", "chunk"))
class United(OtherMask):
    def other(self):
        return ("or", *self.m.mask[1:])


@plants("mask.composition", "causal by force", masks=("all", "documents"))
class ForcedCausal(OtherMask):
    """Causal although it was asked not to be."""

    def other(self):
        return ("and", self.m.mask, ("causal",))


@plants("mask.polarity_or_kind", "inverted", masks=("causal", "window", "segment", "chunk"), prefix=False,
        chunks=False)
class Inverted(Planted, Attention):
    """Where true means hidden."""

    def visible(self, call):
        kv = self.held_tokens(call)
        see = ~evaluate(self.m.mask, call.tokens, kv)
        return (see & kv.valid[None, :] & call.tokens.valid[:, None])[None]


@plants("mask.polarity_or_kind", "added", masks=ANY)
class MaskAdded(Planted, Attention):
    """The boolean mask is added to the scores as 0 and 1."""

    def hide(self, call, s, see):
        return s + see.astype(self.real)


@plants("mask.polarity_or_kind", "bias as boolean", masks=("causal", "window"), bias=True)
class BiasAsBoolean(Planted, Attention):
    """An additive mask is cast to a boolean one whose true means hidden: numbers that are not 0 hide."""

    @classmethod
    def prepare(cls, rng, m):
        some = rng.random(m.bias.shape) < 0.15
        some &= ~np.eye(m.num_queries, m.num_keys, m.num_keys - m.num_queries, dtype=bool)  # no row is emptied
        return m.but(bias=np.where(some, -1.0, 0.0)), {}

    def added(self, call):
        return np.where(super().added(call) != 0, -np.inf, 0.0)


@plants("mask.padding_ignored", "keys", masks=("causal",), pads=3, prefix=False, alibi=False)
class PadsAreKeys(Planted, Attention):
    """No key mask: pads in front are keys, standing at the position of the first token."""

    def visible(self, call):
        kv = self.held_tokens(call)
        return (evaluate(self.m.mask, call.tokens, kv) & call.tokens.valid[:, None])[None]


@plants("mask.padding_ignored", "keys behind", masks=("all",), prefix=False, chunks=False, alibi=False)
class PadsBehindAreKeys(Planted, Attention):
    """Pads behind the text, no key mask, not causal; their positions go on."""

    @classmethod
    def prepare(cls, rng, m):
        n = m.num_keys
        pads = int(rng.integers(2, 6))
        kv = dataclasses.replace(m.kv, valid=np.arange(n) < n - pads)
        return m.but(kv=kv), {}

    def visible(self, call):
        return np.broadcast_to(call.tokens.valid[:, None], (1, call.num_queries, len(self.held)))


@plants("mask.padding_ignored", "after the first call", masks=("causal",), pads=4, prefix=False, chunks=True,
        alibi=False)
class PadsAreKeysLater(PadsAreKeys):
    """The key mask is given on the first call only."""

    def visible(self, call):
        return Attention.visible(self, call) if call.index == 0 else super().visible(call)

    @classmethod
    def prepare(cls, rng, m):
        begins = (0, *(b for b in m.begins if b > 5))
        return m.but(begins=begins if len(begins) > 1 else (0, 6, 7)), {}


@plants("mask.padding_ignored", "as text", masks=("causal",), pads=3, prefix=False, chunks=False)
class PadsAreText(Planted, Attention):
    """Neither mask nor positions: pads in front are tokens at rows 0, 1, 2."""

    def everything(self):
        n = self.m.num_keys
        return Tokens(np.arange(n), self.m.kv.segment, np.zeros(n, int), self.m.kv.span, np.ones(n, bool))

    def positions(self, call):
        return np.arange(call.begin, call.end)

    def visible(self, call):
        rows = self.everything()
        return evaluate(self.m.mask, rows.part(call.begin, call.end), rows.part(0, call.end))[None]

    def alibi(self, call):
        behind = np.arange(call.begin, call.end)[:, None] - np.arange(call.end)[None, :]
        return -np.asarray(self.slopes())[:, None, None] * behind


@plants("mask.fully_masked_row", "nan", masks=("causal", "window"), cross=True, sinks=False)
class EmptyRowIsNan(Planted, Attention):
    def empty_rows(self, call, p, lse, see):
        return np.where(see.any(axis=-1)[..., None], p, np.nan), lse


@plants("mask.fully_masked_row", "mean", masks=("causal", "window"), cross=True, sinks=False, shows=("out",))
class EmptyRowIsMean(Planted, Attention):
    """Every score of the row is the same finite number."""

    def empty_rows(self, call, p, lse, see):
        return np.where(see.any(axis=-1)[..., None], p, 1 / see.shape[-1]), lse


@plants("mask.fill_value", "filled", masks=("causal", "window", "segment"), prefix=True, loud=4, softcap=False)
class WeakFill(Planted, Attention):
    @classmethod
    def prepare(cls, rng, m):
        return m, {"fill": float(rng.choice([-5.0, -10.0, -8.0, -20.0]))}

    def hide(self, call, s, see):
        return np.where(see, s, self.real(self.parameters["fill"]))


@plants("mask.fill_value", "added", masks=("causal", "window", "segment"), prefix=True, loud=4, softcap=False)
class WeakAdded(WeakFill):
    def hide(self, call, s, see):
        return np.where(see, s, s + self.real(self.parameters["fill"]))


class OffByOne(OtherMask):
    by = 1

    def other(self):
        return exchange(self.m.mask, "window", lambda leaf: ("window", leaf[1] + self.by))


@plants("mask.window_off_by_one", "one more", masks=("window", "first"))
class OneMore(OffByOne):
    pass


@plants("mask.window_off_by_one", "one fewer", masks=("window", "first"))
class OneFewer(OffByOne):
    by = -1


@plants("mask.window_off_by_one", "one more in the prompt", masks=("window",), chunks=True)
class OneMoreInPrompt(OffByOne):
    """Prefill and decode disagree by one key: calls of one token hold the right window."""

    @classmethod
    def prepare(cls, rng, m):
        # A prompt that fills the window, then single tokens.
        w, rows = size_of(m.mask, "window"), m.num_queries
        prompt = min(max(w + 3 - m.prefix, 5), rows - 3)
        return m.but(begins=(0, *range(prompt, rows))), {}

    def mask(self, call):
        return self.m.mask if call.num_queries == 1 else self.other()


@plants("mask.window_scope", "not applied", masks=("window",))
class WindowNotApplied(OtherMask):
    def other(self):
        return exchange(self.m.mask, "window", lambda leaf: ("all",))


@plants("mask.window_scope", "applied to a global layer", masks=("causal",))
class WindowEverywhere(OtherMask):
    @classmethod
    def prepare(cls, rng, m):
        return m, {"window": int(rng.integers(3, m.num_keys // 2))}

    def other(self):
        return ("and", self.m.mask, ("window", self.parameters["window"]))


@plants("mask.stale_or_misbound", "previous call", masks=("causal", "window"), chunks=True, equal_calls=True,
        prefix=False)
class StaleMask(Planted, Attention):
    """The mask is kept by the length of the call: another call of that length gets the one before, and new keys are
    hidden."""

    @classmethod
    def prepare(cls, rng, m):
        size = int(rng.integers(2, 5))
        n = m.num_keys // size * size
        keep = m.kv.part(0, n)
        bias = None if m.bias is None else m.bias[:, :n, :n]
        return m.but(kv=keep, bias=bias, begins=tuple(range(0, n, size))), {}

    def visible(self, call):
        right = super().visible(call)
        before = getattr(self, "kept", None)
        self.kept = right
        if before is None or before.shape[1] != right.shape[1]:
            return right
        stale = np.zeros_like(right)
        stale[..., :before.shape[2]] = before
        return stale


@plants("mask.stale_or_misbound", "bias of other heads", masks=("causal", "window"), bias=True)
class BiasOfOtherHeads(Planted, Attention):
    """Heads are folded group first, the additive mask's key head first."""

    def added(self, call):
        m = self.m
        folded = np.arange(m.num_q_heads).reshape(m.group, m.num_kv_heads).T.reshape(-1)
        return super().added(call)[folded] if call.row >= 0 else super().added(call)


@plants("mask.prefix_bidirectional", "causal", masks=("span",), prefix=False, chunks=False)
class SpanCausal(OtherMask):
    """Image tokens see each other only causally."""

    def other(self):
        return exchange(self.m.mask, "span", lambda leaf: ("none",))


@plants("mask.prefix_bidirectional", "all spans are one", masks=("span",), prefix=False, chunks=False)
class SpansAreOne(Planted, Attention):
    """Image 1 sees image 2."""

    def visible(self, call):
        one = dataclasses.replace(call.tokens, span=(call.tokens.span > 0).astype(int))
        kv = self.held_tokens(call)
        all_one = dataclasses.replace(kv, span=(kv.span > 0).astype(int))
        return (evaluate(self.m.mask, one, all_one) & kv.valid[None, :])[None]


@plants("mask.chunked_local", "origin", masks=("chunk",))
class ChunkOrigin(Planted, Attention):
    """Chunks are cut some tokens too early or late."""

    @classmethod
    def prepare(cls, rng, m):
        return m, {"by": int(rng.integers(1, size_of(m.mask, "chunk")))}

    def visible(self, call):
        by = self.parameters["by"]
        kv = self.held_tokens(call)
        return evaluate(self.m.mask, dataclasses.replace(call.tokens, start=call.tokens.start - by),
                        dataclasses.replace(kv, start=kv.start - by))[None]


@plants("mask.chunked_local", "row of the call", masks=("chunk",), chunks=True, prefix=True)
class ChunkOfRow(Planted, Attention):
    """The query's chunk is counted from the first row of its call; causality is right."""

    def visible(self, call):
        size = size_of(self.m.mask, "chunk")
        kv = self.held_tokens(call)
        mine, theirs = np.arange(call.num_queries) // size, (kv.pos - kv.start) // size
        return ((mine[:, None] == theirs[None, :]) & evaluate(("causal",), call.tokens, kv))[None]


@plants("mask.chunked_local", "sliding", masks=("chunk",))
class ChunkSlides(OtherMask):
    """A sliding window of the chunk's size stands in place of the chunks."""

    def other(self):
        return exchange(self.m.mask, "chunk", lambda leaf: ("window", leaf[1]))


@plants("pack.cross_document", masks=("segment", "documents"))
class DocumentsMeet(OtherMask):
    def other(self):
        return exchange(self.m.mask, "segment", lambda leaf: ("all",))


@plants("pack.cross_document", "by row, where positions restart", masks=("segment",), alibi=False)
class RowsMeet(DocumentsMeet):
    """Positions are declared to restart with each document; the mask that is left counts rows."""

    @classmethod
    def prepare(cls, rng, m):
        kv = m.kv
        return m.but(kv=Tokens(kv.pos - kv.start, kv.segment, 0 * kv.start, kv.span, kv.valid)), {}

    def visible(self, call):
        see = np.arange(call.begin, call.end)[:, None] >= self.held[None, :]
        return (see & self.m.kv.valid[self.held][None, :] & call.tokens.valid[:, None])[None]


@plants("mask.causal_dropped", "blocks without rules", masks=("window",), first=0)
class BlocksWithoutRules(Planted, Attention):
    """Block-local attention whose causal and window rules are joined so that they hide nothing."""

    @classmethod
    def prepare(cls, rng, m):
        return m, {"block": int(rng.integers(2, m.num_keys // 2)), "back": int(rng.integers(0, 3))}

    def visible(self, call):
        size = self.parameters["block"]
        back = call.tokens.pos[:, None] // size - self.m.kv.pos[self.held][None, :] // size
        return ((back >= 0) & (back <= self.parameters["back"]) & self.m.kv.valid[self.held][None, :] &
                call.tokens.valid[:, None])[None]
