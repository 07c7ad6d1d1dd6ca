"""check_loss from Python: probes, shapes, types, and what is refused."""
import numpy as np
import pytest

import sightline as sl

LABELS = np.array([[0, 2, 1, 3, 2, 4], [1, 4, 0, -100, -100, -100]])
rng = np.random.default_rng(0)


def token_losses(logits, row, shift=1):
    return [np.log(np.exp(logits[row, i]).sum()) - logits[row, i, t]
            for i, t in enumerate(LABELS[row, shift:]) if t >= 0]


def steps(loss, count=2):
    logits = rng.standard_normal((count, 2, 6, 5))
    return logits, np.array([loss(x) for x in logits], np.float32)


def test_the_mean_over_all_targets_agrees():
    logits, loss = steps(lambda x: np.mean(token_losses(x, 0) + token_losses(x, 1)))
    assert sl.check_loss(LABELS, logits=logits, loss=loss, micro_batches=[0, 1]).verdict == "agrees"
    assert sl.check_loss(LABELS, logits=logits[0], loss=loss[0]).verdict == "agrees"


def test_means_of_micro_batches_are_named_and_only_two_probes_are_certain():
    logits, loss = steps(lambda x: (np.mean(token_losses(x, 0)) + np.mean(token_losses(x, 1))) / 2)
    report = sl.check_loss(LABELS, logits=logits, loss=loss, micro_batches=[0, 1])
    assert (report.faults[0].slug, report.faults[0].variant) == ("loss.normalisation", "micro_means"), str(report)
    assert report.faults[0].certain, str(report)
    one = sl.check_loss(LABELS, logits=logits[0], loss=loss[0], micro_batches=[0, 1])
    assert one.faults and not one.faults[0].certain, str(one)


def test_hidden_and_head_with_a_gradient_of_a_double_shift():
    hidden, head = rng.standard_normal((2, 2, 6, 3)), rng.standard_normal((5, 3))
    def gradient(h):
        total, count = np.zeros((5, 3)), 0
        for row in range(2):
            for i, t in enumerate(LABELS[row, 2:]):
                if t < 0:
                    continue
                p = np.exp(head @ h[row, i])
                total += np.outer(p / p.sum() - np.eye(5)[t], h[row, i])
                count += 1
        return total / count
    d_head = np.stack([gradient(h) for h in hidden]).astype(np.float32)
    report = sl.check_loss(LABELS, hidden=hidden, head=head, d_head=d_head)
    assert report.faults[0].slug == "loss.label_shift", str(report)
    assert report.faults[0].parameters == {"shift": 2} and report.faults[0].certain, str(report)


def test_what_does_not_fit_is_refused():
    logits, loss = steps(lambda x: 1.0)
    with pytest.raises(ValueError, match="logits, or hidden and head"):
        sl.check_loss(LABELS, loss=loss)
    with pytest.raises(ValueError, match="nothing was observed"):
        sl.check_loss(LABELS, logits=logits)
    with pytest.raises(ValueError, match="label 4 is outside"):
        sl.check_loss(LABELS, logits=logits[..., :4], loss=loss)
    with pytest.raises(ValueError, match="probes"):
        sl.check_loss(LABELS, logits=logits, loss=np.zeros(3))


def test_a_given_matrix_is_a_rule_of_the_mask():
    q, k, v = (rng.standard_normal((2, 6, 2, 4)).astype(np.float32) for _ in range(3))
    matrix = np.ones((6, 6), bool)
    matrix[3:, 1] = False
    spec = sl.attention_spec(num_q_heads=2, qk_head_dim=4, mask="causal & dense")
    right = np.stack([sl.attention(*x, spec, dense=matrix) for x in zip(q, k, v)])
    assert sl.diagnose(spec, q=q, k=k, v=v, out=right, dense=matrix).verdict == "agrees"
    plain = np.stack([sl.attention(*x, "causal") for x in zip(q, k, v)])
    report = sl.diagnose(spec, q=q, k=k, v=v, out=plain, dense=matrix)
    assert report.faults[0].slug == "mask.composition" and report.faults[0].parameters == {"rule": 2}, str(report)
