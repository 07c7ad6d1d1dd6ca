"""Whether a model norms its queries and keys, each head by itself and before their rotation.

Found by experiments on projections, not by reading code: a norm takes away the length of what it is given, so a
projection times two changes nothing behind it.
"""
import contextlib

# Families whose config says by their name that queries and keys are normed, and over what.
_PER_HEAD = {"qwen3", "qwen3_moe", "gemma3_text"}
_FULL_WIDTH = {"olmo2", "olmo3", "olmoe"}
# Of the change that turning a projection round makes; twice an unnormed one makes a half of it. Norms that are modules
# lose their epsilon meanwhile, that of others leaves some.
_SEEN, _SEEN_BESIDE_EPSILON = 1e-3, 0.05
_EPSILONS = ("eps", "variance_epsilon", "epsilon")


class _Side:
    """The queries, or the keys, of every attention: projections, and the modules that norm them where there are any."""

    def __init__(self, model, name, num_heads, head_dim):
        self.name, self.num_heads, self.head_dim = name, num_heads, head_dim
        found = [(m.layer_idx, m) for m in model.modules() if hasattr(m, "layer_idx") and hasattr(m, f"{name}_proj")]
        found = [(i, m) for i, m in found if getattr(getattr(m, f"{name}_proj"), "weight", None) is not None
                 and getattr(m, f"{name}_proj").weight.shape[0] == num_heads * head_dim]
        self.projections = {i: getattr(m, f"{name}_proj") for i, m in found}
        modules = [getattr(m, f"{name}_norm", None) or getattr(m, f"{name}_layernorm", None) for _, m in found]
        self.norms = [m for m in modules if m is not None and getattr(m, "weight", None) is not None]

    @contextlib.contextmanager
    def without_epsilon(self):
        kept = [(norm, name, getattr(norm, name)) for norm in self.norms for name in _EPSILONS
                if isinstance(getattr(norm, name, None), float)]
        try:
            for norm, name, _ in kept:
                setattr(norm, name, 0.0)
            yield
        finally:
            for norm, name, epsilon in kept:
                setattr(norm, name, epsilon)

    @property
    def least(self):
        """The share of a change that shows a norm missing."""
        return _SEEN if len(self.norms) == len(self.projections) else _SEEN_BESIDE_EPSILON

    @contextlib.contextmanager
    def times(self, factor, layers=None, rows=slice(None)):
        """The projections of some layers give `factor` times what they gave, of all heads or some rows."""
        kept = []
        try:
            for i, projection in self.projections.items():
                if layers is not None and i not in layers:
                    continue
                for p in (projection.weight, projection.bias):
                    if p is not None:
                        kept.append((p, p.data))
                        p.data = p.data.clone()
                        p.data[rows] *= factor
            yield
        finally:
            for p, data in kept:
                p.data = data


def _share(relations, side, **where):
    """The change that twice the projection makes, over that of turning it round; None where neither is seen."""
    changes = []
    with side.without_epsilon():
        base = relations.run.logits(relations.ids[:1])
        for factor in (2, -1):
            with side.times(factor, **where):
                got = relations.run.logits(relations.ids[:1])
            changes.append((got - base)[..., relations.usual].abs().max().item())
    return changes[0] / changes[1] if changes[1] > relations.bound else None


def _is_declared(config, sides):
    """Whether queries and keys are to be normed, and whether each head is by itself; (False, None): they are not."""
    if config.model_type in _PER_HEAD:
        return True, True
    if config.model_type in _FULL_WIDTH:
        return True, False
    norms = [(norm, side) for side in sides for norm in side.norms]
    if not norms or getattr(config, "use_qk_norm", True) is False:
        return False, None
    wide = [norm.weight.numel() > side.head_dim and norm.weight.ndim == 1 for norm, side in norms]
    return True, None if any(wide) != all(wide) else not wide[0]


def query_and_key_norms(relations):
    """The relations of a model whose config or modules declare such norms; none of any other."""
    from ._model_relations import Relation

    model = relations.run.model
    config = model.config.get_text_config()
    num_q = getattr(config, "num_attention_heads", None)
    num_kv = getattr(config, "num_key_value_heads", None) or num_q
    if not num_q:
        return []
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // num_q
    sides = [_Side(model, "q", num_q, head_dim), _Side(model, "k", num_kv, head_dim)]
    is_normed, per_head = _is_declared(config, sides)
    if not is_normed or not all(side.projections for side in sides):
        return []
    done = []
    for side in sides:
        words = "queries" if side.name == "q" else "keys"
        share = _share(relations, side)
        if share is None:
            continue
        relation = Relation(f"twice the {words} before their norm change nothing", share / side.least, relations.rows)
        done.append(relation)
        if not relation.holds:
            wrong = [i for i in side.projections if (_share(relations, side, layers=[i]) or 0) > side.least]
            parameters = [("layer", float(min(wrong, default=0)), "the first without the norm, from 0"),
                          ("layers", float(len(wrong)), "without it")]
            relation.fault = ("head.qk_norm", "skipped", f"{words} are not normed", parameters)
            continue
        if side.num_heads > 1 and per_head is not None:
            share = _share(relations, side, rows=slice(0, head_dim)) or 0.0
            name = (f"twice the {words} of one head change nothing" if per_head else
                    f"twice the {words} of one head change the others' share of their norm")
            relation = Relation(name, share / side.least if per_head else float(share < side.least) * 2, relations.rows)
            if not relation.holds:
                relation.fault = ("head.qk_norm", "shared" if per_head else "per_head",
                                  f"one norm over all heads of the {words}, and each head is to have its own"
                                  if per_head else
                                  f"each head of the {words} is normed by itself, and all are to be together", [])
            done.append(relation)
    # Some families norm behind their rotation by design.
    if config.model_type in _PER_HEAD | _FULL_WIDTH and not any(relation.fault for relation in done):
        done += _before_rotation(relations, sides)
    return done


def _before_rotation(relations, sides):
    """What is rotated behind its norm depends on distances alone, whatever weights the norm has; else it does not."""
    import torch

    run = relations.run
    config = run.model.config.get_text_config()
    longest = getattr(config, "max_position_embeddings", None) or 0
    norms = [norm for side in sides for norm in side.norms]
    if not norms or "position_ids" not in run.takes or relations.tokens + 7 > longest:
        return []
    kept = [(norm.weight, norm.weight.data) for norm in norms]
    generator = torch.Generator().manual_seed(1)

    def worst(weights):
        for weight, data in kept:
            weight.data = weights(data)
        base = run.logits(relations.ids[:1])
        moved = run.logits(relations.ids[:1], position_ids=relations.run_positions(1, 7))
        return relations.compare("all positions + 7 change nothing, whatever weights the norms of q and k have",
                                 base, moved)

    try:
        uniform = worst(lambda data: torch.full_like(data, 0.7))
        drawn = worst(lambda data: 0.5 + torch.rand(data.shape, generator=generator, dtype=torch.float64).to(data))
    finally:
        for weight, data in kept:
            weight.data = data
    if not uniform.holds:  # positions are not relative for another reason
        return []
    if not drawn.holds:
        drawn.rows = relations.rows
        drawn.fault = ("head.qk_norm", "after_rotation",
                       "queries and keys are normed after their rotation, whose pairs the weights then tear apart", [])
    return [drawn]
