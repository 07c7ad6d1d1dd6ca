"""What each layer's attention does in calls of a model, named by `diagnose`: whole, on a cache, padded, backward."""
import json

from ._core import AttentionSpec
from ._record import record

# Families whose config says all that their attention means, tested (python/tests/foreign/test_check_model.py).
KNOWN = {"llama", "mistral", "gemma", "gemma2", "gemma3_text", "qwen2", "qwen3", "phi3", "gpt2", "cohere", "cohere2",
         "olmo2", "starcoder2", "granite", "glm", "mixtral", "smollm3"}
# What no config says and the declared spec lacks.
_BEYOND = ("sinks", "alibi", "slopes")


def beyond_the_config(model):
    """The name of something in the model that its attention adds to what the config declares, or None."""
    config = model.config.get_text_config()
    if getattr(config, "alibi", False) or config.model_type in ("bloom", "mpt"):
        return "alibi"
    for name, _ in model.named_parameters():
        if name.rsplit(".", 1)[-1] in _BEYOND:
            return name
    return None


class LayerScenario:
    """One way of calling the model, recorded, and what its layers then did."""

    def __init__(self, name, dump, first_row=0, dtype=None):
        self.name, self.dump, self.first_row, self.dtype = name, dump, first_row, dtype

    def reports(self):
        """(layer, Report) of layers that do not agree, and how many do; ValueError where a spec must be given."""
        wrong, right = [], 0
        for layer in sorted(self.dump.layers):
            report = self.dump.diagnose(layer, first_row=self.first_row, dtype=self.dtype)
            if report.ok:
                right += 1
            else:
                wrong.append((layer, report))
            if len(wrong) == 2:
                break
        return wrong, right

    def rotations_of_another_type(self):
        """(layers, the type whose rotation they have, their own type), if that explains all that are wrong, or None."""
        kinds = getattr(self.dump.config, "layer_types", None)
        if not kinds or len(set(kinds)) < 2:
            return None
        of_kind = {kind: json.loads(self.dump.spec(kinds.index(kind)).to_json())["rope"] for kind in set(kinds)}

        def is_right(layer, spec=None):
            return self.dump.diagnose(layer, spec, first_row=self.first_row, dtype=self.dtype).ok

        found = []
        for layer in sorted(self.dump.layers):
            if is_right(layer):
                continue
            own = json.loads(self.dump.spec(layer).to_json())
            theirs = [kind for kind in sorted(of_kind) if of_kind[kind] != own["rope"] and is_right(
                layer, AttentionSpec.from_json(json.dumps({**own, "rope": of_kind[kind]})))]
            if not theirs:
                return None
            found.append((layer, theirs[0], kinds[layer]))
        layers, theirs, owns = zip(*found)
        return list(layers), " and ".join(sorted(set(theirs))), " and ".join(sorted(set(owns)))


def scenarios(run, ids, pad):
    """LayerScenarios in the order in which they are looked at. RuntimeError and the like where a call is refused."""
    import torch

    model = run.model
    half = ids.shape[1] // 2

    def whole():
        with record(model) as dump, torch.no_grad():
            run(ids)
        return LayerScenario("in one call", dump)

    def continued():
        third = ids.shape[1] // 3
        with record(model) as dump:
            run.cached(ids, [third, 5, ids.shape[1] - third - 5])
        return LayerScenario("in later calls on a cache", dump, first_row=third)

    def stepped():
        with record(model) as dump:
            run.cached(ids, [half] + [1] * (ids.shape[1] - half))
        return LayerScenario("in steps of one token on a cache", dump, first_row=half)

    def padded():
        pads = ids.new_full((ids.shape[0], 3), pad)
        mask = torch.cat([torch.zeros_like(pads), torch.ones_like(ids)], 1)
        positions = (mask.cumsum(1) - 1).clamp(min=0) if "position_ids" in run.takes else None
        with record(model) as dump:
            run.cached(torch.cat([pads, ids], 1), [3 + half, ids.shape[1] - half], mask, positions)
        return LayerScenario("in left-padded rows on a cache", dump, first_row=3)

    def backward():
        from ._model_gradients import loss_of

        with record(model) as dump, torch.enable_grad():
            loss_of(run, ids, ids).backward()
        # Gradients are differences of nearly equal numbers: names need less than the last digits of them.
        return LayerScenario("in the backward", dump, dtype="f16")

    # In half types too little is left of a gradient to name anything.
    wide = next(model.parameters()).dtype in (torch.float32, torch.float64)
    return [whole, continued, stepped, padded] + [backward] * wide
