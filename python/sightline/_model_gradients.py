"""Whether the gradient is that of the loss: directional differences over a sweep of steps. Judges no objective."""
from dataclasses import dataclass, field

import numpy as np

STEPS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
MAX_TENSORS = 200  # looked at one by one, where the sum over all of them is wrong


@dataclass
class GradientFinding:
    """Largest error of a directional derivative, relative; parameters whose derivative is not that of the loss."""
    error: float = 0.0
    step: float = 0.0
    num_tensors: int = 0
    wrong: list = field(default_factory=list)    # (name, by differences, by the gradient)
    severed: list = field(default_factory=list)  # names: no gradient, and the loss depends on them
    repeats: float = 0.0                         # change of the gradient when it is taken again, relative

    @property
    def right(self):
        return not self.wrong and not self.severed


def loss_of(run, ids, labels):
    """The model's own loss of a batch, or where it has none the mean over all targets."""
    import torch

    if "labels" in run.takes:
        return run(ids, labels=labels).loss
    logits = run(ids).logits
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def check_gradients(run, ids, labels, rng, tolerance=1e-5):
    """A GradientFinding of the model as it stands, which should compute in float64.

    Along a random direction d, each tensor in its own scale, (L(w + h d) - L(w - h d)) / 2h is held against <dL/dw, d>
    for the step h between whose neighbours it moves least. Where they differ, each tensor is tried alone.
    """
    import torch

    parameters = [(name, p) for name, p in run.model.named_parameters() if p.requires_grad]

    def gradient():
        with torch.enable_grad():
            loss = loss_of(run, ids, labels)
            return torch.autograd.grad(loss, [p for _, p in parameters], allow_unused=True)

    gradients, again = gradient(), gradient()
    finding = GradientFinding(num_tensors=len(parameters))
    size = max((g.abs().max().item() for g in gradients if g is not None), default=0.0) or 1.0
    finding.repeats = max(((a - b).abs().max().item() / size for a, b in zip(gradients, again) if a is not None),
                          default=0.0)
    generator = torch.Generator().manual_seed(int(rng.integers(1 << 30)))
    directions = []
    for _, p in parameters:
        scale = p.detach().square().mean().sqrt().item() or 1e-2
        directions.append(torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.dtype) * scale)
    kept = [p.data for _, p in parameters]

    def difference(which):
        """(derivative along the directions of `which`, its own uncertainty, step)."""
        values = []
        try:
            for step in STEPS:
                pair = []
                for sign in (1, -1):
                    for i in which:
                        parameters[i][1].data = kept[i] + sign * step * directions[i]
                    with torch.no_grad():
                        pair.append(loss_of(run, ids, labels).item())
                values.append((pair[0] - pair[1]) / (2 * step))
        finally:
            for i in which:
                parameters[i][1].data = kept[i]
        spreads = np.abs(np.diff(values))
        best = int(np.argmin(spreads))
        return values[best + 1], float(spreads[best]), STEPS[best + 1]

    exact = [0.0 if g is None else (g * d).sum().item() for g, d in zip(gradients, directions)]
    scale = float(np.sqrt(np.sum(np.square(exact)))) or 1.0
    by_differences, spread, finding.step = difference(range(len(parameters)))
    finding.error = abs(by_differences - sum(exact)) / max(scale, abs(by_differences))
    if finding.error <= max(tolerance, 20 * spread / scale):
        return finding
    for i, (name, _) in enumerate(parameters[:MAX_TENSORS]):
        own, spread, _ = difference([i])
        if abs(own - exact[i]) <= max(tolerance * max(abs(own), abs(exact[i])), 1e-7 * scale, 20 * spread):
            continue
        is_zero = gradients[i] is None or not gradients[i].any()
        if is_zero:
            finding.severed.append(name)
        else:
            finding.wrong.append((name, own, exact[i]))
    if finding.right:
        finding.wrong.append(("all together", by_differences, sum(exact)))
    return finding
