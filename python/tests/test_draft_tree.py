"""A draft tree that is verified: arrays and functions, right and wrong in the ways of reports."""
import numpy as np
import pytest

import plain
import sightline as sl

PARENTS, PAST = [-1, 0, 0, 1, 2, 2], 10
ROPE = sl.rope_spec(rotary_dim=8)


def depths(parents):
    depth = []
    for parent in parents:
        depth.append(0 if parent < 0 else depth[parent] + 1)
    return depth


def visible(parents, past, siblings=False):
    """[past + drafts, past + drafts]: who sees whom, `siblings` as in a row."""
    seen = np.tri(past + len(parents), dtype=bool)
    for node in range(len(parents)):
        if siblings:
            continue
        seen[past + node, past:] = False
        ancestor = node
        while ancestor >= 0:
            seen[past + node, past + ancestor] = True
            ancestor = parents[ancestor]
    return seen


def attend(q, k, v, seen, pos):
    """The newest len(q) rows, heads of 8 that turn in halves."""
    frequencies = 10000.0 ** (-np.arange(4) / 4)
    q, k = (plain.rotate(x, pos[-len(x):], frequencies, "half_split") for x in (q, k))
    return plain.attention(q, k, v, seen[-len(q):])[0].astype(np.float32)


@pytest.mark.parametrize("wrong", ["", "siblings", "positions"])
def test_arrays_of_a_verification_are_explained(wrong):
    rng = np.random.default_rng(0)
    n = PAST + len(PARENTS)
    q, k, v = (rng.standard_normal((2, n, heads, 8)).astype(np.float32) for heads in (4, 2, 2))
    pos = [*range(PAST), *(PAST + d for d in depths(PARENTS))]
    used = range(n) if wrong == "positions" else pos
    out = np.stack([attend(*x, visible(PARENTS, PAST, wrong == "siblings"), list(used)) for x in zip(q, k, v)])
    spec = sl.attention_spec(num_q_heads=4, num_kv_heads=2, qk_head_dim=8, mask="tree & causal", rope=ROPE)
    report = sl.diagnose(spec, q=q, k=k, v=v, out=out, draft_parents=PARENTS, q_pos=pos, kv_pos=pos)
    if not wrong:
        assert report.ok, str(report)
        return
    found = [(f.slug, f.variant, f.certain) for f in report.faults]
    assert found == [("mask.tree_speculative", wrong, True)], str(report)
    with pytest.raises(ValueError, match=r"draft_parents\[0\] = 3"):
        sl.diagnose(spec, q=q, k=k, v=v, out=out, draft_parents=[3, 0], q_pos=pos, kv_pos=pos)


@pytest.mark.parametrize("wrong", ["", "siblings", "positions"])
def test_a_function_that_verifies_a_tree_is_checked(wrong):
    def verify(q, k, v, draft_parents):
        parents = draft_parents.tolist()
        past = len(k) - len(parents)
        pos = [*range(past), *(past + (i if wrong == "positions" else d) for i, d in enumerate(depths(parents)))]
        return attend(q, k, v, visible(parents, past, wrong == "siblings"), pos)

    report = sl.check(verify, "causal & tree", num_q_heads=4, num_kv_heads=2, head_dim=8, rope=ROPE)
    if not wrong:
        assert report.ok, str(report)
        return
    assert [(f.slug, f.variant) for f in report.faults] == [("mask.tree_speculative", wrong)], str(report)


def test_a_function_that_is_told_no_tree_is_refused():
    with pytest.raises(ValueError, match="is not told one"):
        sl.check(lambda q, k, v: q, "causal & tree", num_q_heads=4, num_kv_heads=2, head_dim=8)
