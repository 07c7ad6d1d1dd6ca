"""What every right causal language model keeps, held against the model itself, and experiments on what does not hold.

An experiment asks the model again under one changed condition (positions given, content edited, a mask taken away): the
condition under which the answers agree is what was wrong.
"""
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Relation:
    """One relation: largest change in rounding bounds; `fault` where an experiment names why it does not hold."""
    name: str
    worst: float = 0.0
    rows: int = 0                 # sequences that broke it by ten bounds
    place: object = None          # (row, token, component, expected, got)
    fault: object = None          # (slug, variant, what, [(name, value, words)])
    notes: list = field(default_factory=list)   # (text, value)
    group: str = ""               # the method that holds it

    @property
    def holds(self):
        return self.worst <= 1


def usual_columns(logits):
    """[vocabulary] of bool: columns that are numbers everywhere and no fill, as models suppress tokens with."""
    import torch

    limit = min(1e30, torch.finfo(logits.dtype).max / 2)
    return (logits.abs() < limit).flatten(0, -2).all(0)


class Relations:
    """Holds relations of one model on `ids` [2, tokens]. `bound` is the change of a logit that is rounding."""

    def __init__(self, run, ids, bound, rng, mask_value=0):
        self.run, self.ids, self.bound, self.rng, self.pad = run, ids, bound, rng, mask_value
        self.rows, self.tokens = ids.shape
        self.alone = [run.logits(row[None]) for row in ids]
        self.usual = usual_columns(self._together())
        self.done, self.skipped, self.notes = [], [], []
        self.relative = False  # until positions + a constant are seen to change nothing

    def compare(self, name, want, got, rows=None):
        """A Relation of logits [rows, tokens, vocabulary]; `rows` marks [rows, tokens] that count."""
        columns = self.usual.nonzero()[:, 0] if want.shape[-1] == len(self.usual) else slice(None)
        got, want = got[..., columns], want[..., columns]
        change = (got.double() - want.double()).abs()
        change = change.nan_to_num(nan=float("inf")) / self.bound
        if rows is not None:
            change = change * rows[..., None]
        relation = Relation(name, change.max().item() if change.numel() else 0.0)
        if not relation.holds:
            row, token, part = np.unravel_index(int(change.argmax()), tuple(change.shape))
            component = part if isinstance(columns, slice) else columns[part]
            relation.place = (int(row), int(token), int(component), want[row, token, part].item(),
                              got[row, token, part].item())
            relation.rows = int((change.amax((1, 2)) > 10).sum())
        return relation

    def same(self, want, got):
        return self.compare("", want, got).holds

    def hold(self, method):
        """Adds the relations of one method; what the model refuses is noted, and no fault."""
        try:
            found = method()
        except Exception as error:  # a refusal is the model's own: its text says which
            lines = str(error).strip().splitlines() or [""]
            self.skipped.append(f"{method.__name__.replace('_', ' ')}: {type(error).__name__}: {lines[0][:160]}")
            return
        found = [found] if isinstance(found, Relation) else found
        for relation in found:
            relation.group = method.__name__
        self.done += found

    # Each method below is one kind of relation.

    def batch(self):
        import torch

        together = torch.cat(self.alone)
        relation = self.compare("a row of a batch = the row alone", together, self.run.logits(self.ids))
        turned = self.compare("the order of rows changes nothing", together.flip(0), self.run.logits(self.ids.flip(0)))
        same = self.ids[:1].repeat(3, 1)
        copies = self.compare("equal rows of a batch are equal", self.alone[0].repeat(3, 1, 1), self.run.logits(same))
        if not copies.holds and {"position_ids", "attention_mask"} <= self.run.takes:
            # Positions named for each row, or all 0 so that nothing turns: where equal rows are equal then, positions
            # were what differed. The mask keeps equal positions from being taken for documents.
            for positions in (self.run_positions(3), torch.zeros(3, self.tokens, dtype=torch.long)):
                logits = self.run.logits(same, position_ids=positions, attention_mask=torch.ones_like(same))
                if self.same(logits[:1].expand_as(logits), logits):
                    copies.fault = ("rope.batch_row", "", "rows of a batch beyond the first have other positions", [])
                    break
        if copies.fault is None and not (relation.holds and turned.holds and copies.holds):
            relation.fault = ("batch.kernel_indexing", "", "a row's answer depends on the batch that it is in", [])
        return [relation, turned, copies]

    def run_positions(self, rows, first=0):
        import torch

        return torch.arange(first, first + self.tokens)[None].repeat(rows, 1)

    def edits(self, positions=None, **options):
        """[tokens, tokens]: change of row i, in bounds, when token j is another."""
        import torch

        seen = np.zeros((self.tokens, self.tokens))
        row = self.ids[:1]
        base = self.run.logits(row, **options)
        for j in positions if positions is not None else range(1, self.tokens):
            edited = row.clone()
            edited[0, j] = self.ids[1, j] if self.ids[1, j] != row[0, j] else self.ids[1, j - 1]
            change = (self.run.logits(edited, **options) - base)[..., self.usual].abs().double()
            seen[:, j] = torch.nan_to_num(change, nan=float("inf")).amax((0, 2)).numpy() / self.bound
        return seen

    def causality(self):
        every = sum(p.numel() for p in self.run.model.parameters()) < 20e6
        positions = None if every else sorted({1, self.tokens // 3, self.tokens // 2, self.tokens - 1})
        seen = self.edits(positions)
        ahead = np.triu(seen, 1)
        relation = Relation("an edit of a later token leaves earlier logits alone", float(ahead.max()))
        if not relation.holds:
            i, j = np.argwhere(ahead > 1)[0]
            relation.rows = 1  # sequences: one was edited
            relation.place = (0, int(i), int(j), 0.0, float(seen[i, j]))
            i, j = np.nonzero(ahead > 1)
            reach = ("ahead", float((j - i).max()), "tokens that the logits look ahead, through all layers")
            relation.fault = ("mask.causal_dropped", "", "earlier rows read later tokens", [reach])
        if "attention_mask" in self.run.takes:
            mask = self.ids.new_ones(1, self.tokens)
            noop = self.compare("a mask of ones changes nothing", self.alone[0],
                                self.run.logits(self.ids[:1], attention_mask=mask))
            return [relation, noop]
        return [relation]

    def gradients_of_the_first_row(self):
        """The loss at the first position has no gradient in later embeddings: exactly 0."""
        import torch

        table = self.run.model.get_input_embeddings()
        kept = []

        def keep(module, args, out):
            out = out.detach().requires_grad_()
            kept.append(out)
            return out

        hook = table.register_forward_hook(keep)
        try:
            with torch.enable_grad():
                logits = self.run(self.ids[:1]).logits
                loss = torch.nn.functional.cross_entropy(logits[:, 0], self.ids[:1, 1])
                d_embeds, = torch.autograd.grad(loss, kept[0])
        finally:
            hook.remove()
        d_embeds = d_embeds.nan_to_num(nan=float("inf")).abs().amax(-1)[0]
        later = d_embeds[1:]
        relation = Relation("the first position's loss has gradient 0 in later embeddings", 0.0)
        if later.max() > 0:
            relation.worst, relation.rows = float("inf"), 1
            token = int(later.argmax()) + 1
            relation.place = (0, token, 0, 0.0, later.max().item())
            forward = self.edits([token])[0, token] > 1
            slug = "mask.causal_dropped" if forward else "grad.mask_mismatch"
            what = "earlier rows read later tokens" if forward else "the backward reaches tokens that the forward hides"
            relation.fault = (slug, "", what, [])
        return relation

    def chunks(self):
        half = self.tokens // 2
        relations = []
        for name, chunks in (("two calls on a cache = one call", [half, self.tokens - half]),
                             ("token by token = one call", [1] * self.tokens),
                             ("calls of 5, 1, 3, ... = one call", [5, 1, 3, self.tokens - 9])):
            got = self.run.cached(self.ids, chunks)
            relations.append(self.compare(name, self._together(), got))
        broken = next((r for r in relations if not r.holds), None)
        if broken is not None:
            broken.fault = self._why_chunks(half)
        return relations

    def _together(self):
        import torch

        return torch.cat(self.alone)

    def _why_chunks(self, half):
        """Whether positions of later calls explain it: given rightly they repair it, or wrongly they give the same."""
        import torch

        if "position_ids" not in self.run.takes:
            return None
        chunks = [half, self.tokens - half]
        right = self.run_positions(self.rows)
        wrong = self.run.cached(self.ids, chunks)
        words = "added to the position of a later call's tokens"
        what = "tokens that are appended to a cache stand at other positions than in one call"
        repaired = self.same(self._together(), self.run.cached(self.ids, chunks, positions=right))
        # One call with a mask of its own, so that restarting positions are not taken for documents.
        ones = self.ids.new_ones(self.rows, self.tokens)
        for offset in (-half, 1, -1, half):
            moved = torch.cat([right[:, :half], right[:, half:] + offset], 1)
            try:
                if self.same(wrong, self.run.logits(self.ids, position_ids=moved, attention_mask=ones)):
                    return "cache.position_offset", "", what, [("offset", float(offset), words)]
            except (IndexError, RuntimeError):  # beyond a table
                continue
        return ("cache.position_offset", "", what, []) if repaired else None

    def padding(self):
        import torch

        if "attention_mask" not in self.run.takes:
            return []
        count, relations = 3, []
        pads = self.ids.new_full((self.rows, count), self.pad)
        for side in ("left", "right"):
            parts = [pads, self.ids] if side == "left" else [self.ids, pads]
            ids = torch.cat(parts, 1)
            ones, zeros = torch.ones_like(self.ids), torch.zeros_like(pads)
            mask = torch.cat([zeros, ones] if side == "left" else [ones, zeros], 1)
            real = slice(count, None) if side == "left" else slice(0, self.tokens)
            positions = None
            if side == "left" and "position_ids" in self.run.takes:
                positions = (mask.cumsum(1) - 1).clamp(min=0)
            ways = [("", {"attention_mask": mask, "position_ids": positions}, self.run.logits)]
            if side == "left" and positions is not None:
                # Without positions that name the padding, where they are relative; learned ones need them.
                bare = {"attention_mask": mask}
                if self.relative:
                    ways.append((" without position_ids", bare, self.run.logits))
                else:
                    change = self.compare("", self._together(), self.run.logits(ids, **bare)[:, real]).worst
                    self.notes.append(("left padding needs position_ids: bounds between them and none", change))
            if side == "left" and self.run.cache:
                ways.append((" on a cache", {"mask": mask, "positions": positions},
                             lambda ids, **options: self.run.cached(ids, [count + 4, 5, self.tokens - 9], **options)))
            for way, options, ask in ways:
                got = ask(ids, **options)[:, real]
                relation = self.compare(f"a {side}-padded row{way} = the row alone", self._together(), got)
                if not relation.holds:
                    relation.fault = self._why_padding(ids, options, ask, real, got)
                    if relation.fault and relation.fault[0] == "pos.left_padding":
                        relation.rows = 1  # what is left over, and shown by no experiment: never certain
                relations.append(relation)
        return relations

    def _why_padding(self, ids, options, ask, real, got):
        import torch

        edited = ids.clone()
        hidden = torch.ones_like(edited, dtype=torch.bool)
        hidden[:, real] = False
        edited[hidden] = self.ids[:, :1].expand_as(edited)[hidden]
        if (self.pad == edited[hidden]).all():
            edited[hidden] = self.ids[:, 1:2].expand_as(edited)[hidden]
        if torch.isnan(got).any():
            return "mask.fully_masked_row", "", "rows that see no key are NaN, and spread", []
        if not self.same(got, ask(edited, **options)[:, real]):
            return "mask.padding_ignored", "", "what stands in the padding changes real rows", []
        if options.get("position_ids") is not None or options.get("positions") is not None:
            return "pos.left_padding", "", "real tokens stand at other positions because of the padding before them", []
        return None

    def shifted_positions(self):
        if "position_ids" not in self.run.takes:
            return []
        config = self.run.model.config.get_text_config()
        shift = 7
        length = getattr(config, "max_position_embeddings", None) or self.tokens + shift
        if self.tokens + shift > length:
            return []
        got = self.run.logits(self.ids[:1], position_ids=self.run_positions(1, shift))
        relation = self.compare(f"all positions + {shift} change nothing", self.alone[0], got)
        rope = getattr(config, "rope_parameters", None) or {}
        kinds = {x.get("rope_type", "default") for x in (rope.values() if any(
            isinstance(x, dict) for x in rope.values()) else [rope])} if rope else set()
        if not kinds or kinds & {"dynamic", "longrope"}:  # learned, or a rotation that depends on the length
            what = "move the logits, as learned or length-dependent positions do" if not relation.holds else (
                "change nothing: positions are relative, or none")
            self.notes.append((f"bounds: all positions + {shift} {what}", relation.worst))
            return []
        self.relative = relation.holds
        return relation

    def documents(self, by_positions):
        """Two documents in one row under a mask [1, 1, tokens, tokens], and by restarting positions alone."""
        import torch

        if not {"attention_mask", "position_ids"} <= self.run.takes:
            return []
        first = self.tokens // 2 + 1
        row = torch.cat([self.ids[0, :first], self.ids[1, :self.tokens - first]])[None]
        positions = torch.cat([torch.arange(first), torch.arange(self.tokens - first)])[None]
        document = (torch.arange(self.tokens) >= first).long()
        visible = (document[:, None] == document) & torch.ones(self.tokens, self.tokens).tril().bool()

        def added(visible):
            kind = self.alone[0].dtype
            return torch.zeros(1, 1, *visible.shape, dtype=kind).masked_fill(~visible, torch.finfo(kind).min)

        def apart(masked):
            """Each document in a call of its own; a mask of the caller's takes the place of windows, so there too."""
            parts = []
            for ids in (self.ids[:1, :first], self.ids[1:, :self.tokens - first]):
                own = torch.ones(ids.shape[1], ids.shape[1]).tril().bool()
                parts.append(self.run.logits(ids, attention_mask=added(own) if masked else None))
            return torch.cat(parts, 1)

        relations = []
        for name, options in (("documents under a 4-D mask = the documents alone", {"attention_mask": added(visible)}),
                              ("documents by restarting positions = the documents alone", {})):
            if not options and by_positions is False:
                continue
            ask = {**options, "position_ids": positions}
            relation = self.compare(name, apart(bool(options)), self.run.logits(row, **ask))
            if not relation.holds:
                edited = row.clone()
                edited[0, 1] = self.ids[1, 1] if self.ids[1, 1] != row[0, 1] else self.ids[1, 0]
                after = torch.zeros(1, self.tokens)
                after[:, first:] = 1
                reads = not self.compare("", self.run.logits(row, **ask), self.run.logits(edited, **ask), after).holds
                if reads and not options and by_positions is None:
                    relation = Relation(name, 0.0, notes=[(
                        "the model does not tell documents by positions alone: bounds between them and alone",
                        relation.worst)])
                elif reads:
                    relation.fault = "pack.cross_document", "", "the second document reads the first", []
                else:
                    relation.fault = ("pack.position_reset", "",
                                      "the second document depends on the first's length, not on its content", [])
            relations.append(relation)
        return relations

    def training(self):
        """train() with one seed: still causal, and eval() again where nothing is dropped."""
        import torch

        model = self.run.model
        model.train()
        try:
            def seeded(row):
                torch.manual_seed(0)
                return self.run.logits(row)

            middle = self.tokens // 2
            edited = self.ids[:1].clone()
            edited[0, middle:] = self.ids[1, middle:]
            before = torch.zeros(1, self.tokens)
            before[:, :middle] = 1
            base = seeded(self.ids[:1])
            relation = self.compare("in training an edit of later tokens leaves earlier logits alone", base,
                                    seeded(edited), before)
            if not relation.holds:
                relation.fault = ("mask.causal_dropped", "", "in training mode earlier rows read later tokens", [])
            draws = not self.same(self.alone[0], base)
            relation.notes.append(("bounds lie between train() and eval()",
                                   self.compare("", self.alone[0], base).worst if draws else 0.0))
            return relation
        finally:
            model.eval()
