"""What a model's cache must keep when its rows are put into another order, and how many heads it stores."""


def key_arrays(cache):
    """The keys of each layer, [rows, heads, tokens, dim]; empty where the cache shows none in that form."""
    layers = getattr(cache, "layers", None)
    if layers is not None:
        keys = [getattr(layer, "keys", None) for layer in layers]
    elif hasattr(cache, "key_cache"):
        keys = list(cache.key_cache)
    else:
        keys = [layer[0] for layer in cache] if isinstance(cache, (tuple, list)) else []
    return [k for k in keys if getattr(k, "ndim", 0) == 4]


def beams(relations):
    """Rows of a cache in another order, as beam search does it: each goes on with its own history."""
    import torch

    run, ids, half = relations.run, relations.ids, relations.tokens // 2
    in_order = [r for r in relations.done if r.name == "two calls on a cache = one call"]
    if not in_order or not in_order[0].holds:  # the cache is wrong already, and would be so in any order
        return []
    order = torch.tensor([1, 0])
    _, cache = run.step(ids[:, :half])
    turn = getattr(cache, "reorder_cache", None)
    if turn is not None:
        turn(order)
    elif hasattr(run.model, "_reorder_cache"):
        cache = run.model._reorder_cache(cache, order)
    else:
        return []
    got, _ = run.step(ids[order][:, half:], cache)
    want = torch.cat(relations.alone)[order][:, half:]
    relation = relations.compare("rows of a cache in another order go on with their own history", want, got)
    if not relation.holds:
        _, cache = run.step(ids[:, :half])
        unmoved, _ = run.step(ids[order][:, half:], cache)
        what = ("rows of the cache keep their old order after a reordering" if relations.same(unmoved, got)
                else "a part of the cache keeps its old order after a reordering")
        relation.fault = ("cache.beam_reorder", "", what, [])
    return [relation]


def stored_heads(relations):
    """Heads that the cache stores for a token, beside the key heads of the config."""
    from ._model_relations import Relation

    run = relations.run
    config = run.model.config.get_text_config()
    num_q, num_kv = (getattr(config, name, None) for name in ("num_attention_heads", "num_key_value_heads"))
    if not num_q or not num_kv or num_q == num_kv:
        return []
    _, cache = run.step(relations.ids[:, :4])
    before = [tuple(k.shape) for k in key_arrays(cache)]
    _, cache = run.step(relations.ids[:, 4:7], cache)
    after = [tuple(k.shape) for k in key_arrays(cache)]
    # Layers whose third axis grew by the tokens, and no other: [rows, heads, tokens, dim].
    heads = {b[1] for b, a in zip(before, after) if a == (*b[:2], b[2] + 3, b[3])}
    if not heads:
        return []
    expanded = heads == {num_q}
    relation = Relation("the cache stores key heads, not query heads", 2.0 if expanded else 0.0, relations.rows)
    times = max(heads) / num_kv
    relation.notes.append(("times the declared key heads are stored for a token", times))
    if expanded:
        relation.fault = ("cache.gqa_expansion", "", "keys are stored once for each query head",
                          [("times", times, "bytes of a token over those of its key heads")])
    return [relation]
