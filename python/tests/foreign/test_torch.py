"""sightline.torch against float64 torch: values, gradients, and masks put back into rules."""
import math

import numpy as np
import pytest
import torch

import sightline.torch as slt
import sightline as sl


def tensors(batch=2, heads=(4, 2), lens=(5, 7), dims=(6, 3), dtype=torch.float64, seed=0):
    make = torch.Generator().manual_seed(seed)
    shapes = ((batch, heads[0], lens[0], dims[0]), (batch, heads[1], lens[1], dims[0]), (batch, heads[1], lens[1], dims[1]))
    return [torch.randn(s, generator=make, dtype=torch.float64).to(dtype).requires_grad_() for s in shapes]


def by_torch(q, k, v, visible, *, scale=None, softcap=0.0, bias=None, sinks=None, slopes=None):
    """Attention in torch operations only, keys repeated, float64."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    if slopes is not None:
        n, m = scores.shape[-2:]
        scores = scores + slopes[:, None, None] * (torch.arange(m) - torch.arange(m - n, m)[:, None])
    scores = scores.masked_fill(~visible, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(*scores.shape[:-1], 1)], -1)
    lse = scores.logsumexp(-1)
    weights = scores.softmax(-1)[..., :k.shape[-2]]
    return weights @ v, lse


def causal(q_len, kv_len, window=10**9):
    back = torch.arange(kv_len - q_len, kv_len)[:, None] - torch.arange(kv_len)
    return (back >= 0) & (back < window)


def close(got, want, bound):
    return (got - want).abs().max().item() < bound


def test_gradcheck_of_everything_that_has_a_gradient():
    q, k, v = tensors(batch=1, lens=(3, 5), dims=(4, 2))
    bias = torch.randn(4, 1, 5, dtype=torch.float64, requires_grad=True)
    slopes = torch.tensor([0.5, 0.1, 0.3, 0.0], dtype=torch.float64, requires_grad=True)
    sinks = torch.tensor([0.5, -1.0, 0.0, 1.0], dtype=torch.float64, requires_grad=True)
    rope = sl.rope_spec(rotary_dim=4, theta=10.0)

    def call(q, k, v, bias, slopes, sinks):
        return slt.attention(q, k, v, "causal & window(4)", bias=bias, alibi_slopes=slopes, sink_logits=sinks,
                             logit_softcap=2.0, rope=rope, return_lse=True)

    assert torch.autograd.gradcheck(call, (q, k, v, bias, slopes, sinks))


@pytest.mark.parametrize("dtype,bound", [(torch.float64, 1e-12), (torch.float32, 3e-6), (torch.bfloat16, 0.03)])
def test_values_and_gradients_equal_autograd_through_torch(dtype, bound):
    given = tensors(dtype=dtype)
    exact = [x.detach().double().requires_grad_() for x in given]
    bias = torch.randn(1, 4, 1, 7, dtype=torch.float64).to(dtype).requires_grad_()
    sinks = torch.tensor([0.5, -1.0, 0.0, 1.0], dtype=dtype, requires_grad=True)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625], dtype=dtype, requires_grad=True)
    more = [x.detach().double().requires_grad_() for x in (bias, sinks, slopes)]
    out, lse = slt.attention(*given, "causal & window(3)", bias=bias, sink_logits=sinks, alibi_slopes=slopes,
                             softmax_scale=0.3, logit_softcap=2.0, return_lse=True)
    want, want_lse = by_torch(*exact, causal(5, 7, 3), scale=0.3, softcap=2.0, bias=more[0], sinks=more[1],
                              slopes=more[2])
    assert out.dtype == dtype and close(out.double(), want, bound) and close(lse.double(), want_lse, bound)
    d_out, d_lse = torch.randn_like(want), torch.randn_like(want_lse)
    ((want * d_out).sum() + (want_lse * d_lse).sum()).backward()
    torch.autograd.backward((out, lse), (d_out.to(out.dtype), d_lse.to(lse.dtype)))
    for got, ref in zip((*given, bias, sinks, slopes), (*exact, *more)):
        assert got.grad.dtype == got.dtype and got.grad.shape == got.shape
        assert close(got.grad.double(), ref.grad, bound * max(1, ref.grad.abs().max().item()))


def test_it_is_torchs_own_attention():
    q, k, v = tensors(lens=(7, 7), heads=(4, 4), dims=(6, 6), dtype=torch.float32)
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert close(slt.attention(q, k, v), want, 2e-6)
    q = q[:, :, :4]  # is_causal counts queries from the first key
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert close(slt.attention(q, k, v, q_pos=range(4)), want, 2e-6)
    assert not close(slt.attention(q, k, v), want, 1e-2)


def test_keys_are_not_repeated_and_their_gradients_are_summed():
    q, k, v = tensors(heads=(8, 1), dtype=torch.float32)
    out = slt.attention(q, k, v)
    out.sum().backward()
    assert k.grad.shape == (2, 1, 7, 6)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    by_torch(*exact, causal(5, 7))[0].sum().backward()
    assert close(k.grad.double(), exact[1].grad, 1e-5)


def test_a_query_that_sees_nothing_gives_zero_and_no_gradient():
    q, k, v = tensors(dtype=torch.float32)
    dense = torch.ones(5, 7, dtype=torch.bool)
    dense[2] = False
    out = slt.attention(q, k, v, "all", dense=dense)
    out.sum().backward()
    assert (out[:, :, 2] == 0).all() and (q.grad[:, :, 2] == 0).all() and torch.isfinite(k.grad).all()


def test_what_does_not_fit_is_named():
    q, k, v = tensors(dtype=torch.float32)
    with pytest.raises(ValueError, match="num_kv_heads"):
        slt.attention(q[:, :3], k, v)
    with pytest.raises(ValueError, match="expected \\[batch, heads"):
        slt.attention(q[0, 0], k, v)
    with pytest.raises(ValueError, match="requires grad"):
        sl.attention(*(x.transpose(1, 2) for x in (q, k, v)), "causal")
    with pytest.raises(ValueError, match="meta"):
        slt.attention(q.to("meta"), k, v)


DOCS = torch.tensor([0] * 9 + [1] * 14 + [2] * 9)
MIXED = torch.tensor([0, 1] * 16)
IMAGE = torch.tensor([0] * 4 + [1] * 5 + [0] * 6 + [2] * 7 + [0] * 10)
ORDER = torch.randperm(8, generator=torch.Generator().manual_seed(3))
PREFIX = torch.tensor([3, 6, 2])
BLOCKS = torch.rand(8, 8, generator=torch.Generator().manual_seed(1)) < 0.5
STARTS = torch.tensor([0] * 9 + [9] * 14 + [23] * 9)

# mask_mod, what must come out
MODS = {
    "causal": (lambda b, h, q, k: q >= k, "causal"),
    "all": (lambda b, h, q, k: q >= -1, "all"),
    "window": (lambda b, h, q, k: (q >= k) & (q - k < 5), "causal & window(5)"),
    "two sides": (lambda b, h, q, k: (q - k).abs() <= 3, "ahead(3) & window(4)"),
    "prefix": (lambda b, h, q, k: (q >= k) | (k < 6), "(causal | first(6))"),
    "kept first": (lambda b, h, q, k: (q >= k) & ((q - k < 4) | (k < 2)), "causal & (first(2) | window(4))"),
    "chunks": (lambda b, h, q, k: (q >= k) & (q // 8 == k // 8), "causal & chunk(8)"),
    "documents": (lambda b, h, q, k: (q >= k) & (DOCS[q] == DOCS[k]), "causal & segment"),
    "documents, both ways": (lambda b, h, q, k: DOCS[q] == DOCS[k], "segment"),
    "interleaved documents": (lambda b, h, q, k: (q >= k) & (MIXED[q] == MIXED[k]), None),
    "documents with a window": (lambda b, h, q, k: (q >= k) & (DOCS[q] == DOCS[k]) & (q - k < 4),
                                "causal & segment & window(4)"),
    "documents with prefixes": (lambda b, h, q, k: (DOCS[q] == DOCS[k]) & ((q >= k) | (k - STARTS[k] < PREFIX[DOCS[k]])),
                                None),
    "images": (lambda b, h, q, k: (q >= k) | ((IMAGE[q] == IMAGE[k]) & (IMAGE[q] > 0)), "(causal | span)"),
    "steps": (lambda b, h, q, k: (q >= k) & ((q - k) % 3 == 0), "causal & dilated(3)"),
    "steps in a window": (lambda b, h, q, k: (q >= k) & ((q - k) % 3 == 0) & (q - k < 10), None),
    "global tokens": (lambda b, h, q, k: ((q - k).abs() <= 2) | (q == 5) | (k == 5) | (k == 20) | (q == 20), None),
    "causal with global keys": (lambda b, h, q, k: (q >= k) & ((q - k < 3) | (k == 7) | (k == 11)), None),
    "blocks": (lambda b, h, q, k: BLOCKS[q // 4, k // 4], None),
    "causal blocks": (lambda b, h, q, k: (q >= k) & BLOCKS[q // 4, k // 4], None),
    "shuffled blocks": (lambda b, h, q, k: ORDER[q // 4] >= ORDER[k // 4], None),
    "right padding": (lambda b, h, q, k: (q >= k) & (k < 25) & (q < 25), None),
    "left padding": (lambda b, h, q, k: (q >= k) & (k >= 4), None),
    "delayed": (lambda b, h, q, k: q - 3 >= k, None),
    "decode": (lambda b, h, q, k: q + 20 >= k, "causal"),
}


@pytest.mark.parametrize("name", MODS)
def test_a_mask_mod_becomes_rules_that_equal_it_on_every_pair(name, capsys):
    mod, expected = MODS[name]
    q_len = 12 if name == "decode" else 32
    mask = slt.from_mask_mod(mod, q_len, 32)
    assert mask.dense is None and "dense" not in mask.mask, mask
    if expected:
        assert mask.mask == expected
    assert capsys.readouterr().err == ""
    q_idx, k_idx = torch.arange(q_len)[:, None], torch.arange(32)
    want = mod(0, 0, q_idx, k_idx).expand(q_len, 32)
    assert mask.num_visible == want.sum()
    assert np.array_equal(sl.visible(mask.mask, **mask.tokens), want.numpy())
    assert mask.bytes < 8 * 12 * 32
    q, k, v = tensors(batch=1, lens=(q_len, 32), dtype=torch.float32)
    out = slt.attention(q, k, v, mask)
    want = by_torch(q.double(), k.double(), v.double(), want)[0].nan_to_num()
    assert close(out.double(), want, 3e-6)


def test_a_mask_of_other_lengths_is_refused():
    mask = slt.from_mask_mod(lambda b, h, q, k: k <= q, 8, 8)
    q = torch.randn(2, 9, 4)
    with pytest.raises(ValueError, match="evaluated for 8 queries and 8 keys, got 9 and 9"):
        slt.attention(q, q, q, mask)


def test_diagnose_takes_tensors_as_they_are():
    q, k, v = (torch.randn(2, 7, h, 8, dtype=torch.bfloat16).requires_grad_() for h in (4, 2, 2))
    repeated = [x.transpose(1, 2).repeat_interleave(n, 1) for x, n in ((q, 1), (k, 2), (v, 2))]
    out = torch.nn.functional.scaled_dot_product_attention(*repeated, is_causal=True).transpose(1, 2)
    spec = sl.attention_spec(num_q_heads=4, num_kv_heads=2, qk_head_dim=8, mask="causal")
    assert sl.diagnose(spec, q=q, k=k, v=v, out=out).verdict == "rounding"


def test_documents_that_differ_by_sequence():
    docs = torch.stack([DOCS, torch.zeros_like(DOCS), DOCS.flip(0)])
    mod = lambda b, h, q, k: (q >= k) & (docs[b, q] == docs[b, k])  # noqa: E731
    mask = slt.from_mask_mod(mod, 32, 32, batch=3)
    assert mask.mask == "causal & segment" and mask.dense is None
    q, k, v = tensors(batch=3, lens=(32, 32), dtype=torch.float32)
    visible = torch.stack([mod(b, 0, torch.arange(32)[:, None], torch.arange(32)) for b in range(3)])[:, None]
    want = by_torch(q.double(), k.double(), v.double(), visible)[0]
    assert close(slt.attention(q, k, v, mask).double(), want, 3e-6)


def test_sequences_whose_masks_are_of_different_kinds_share_no_rule(capsys):
    mod = lambda b, h, q, k: (q >= k) & ((b == 0) | (q - k < 3))  # noqa: E731
    mask = slt.from_mask_mod(mod, 12, 12, batch=2)
    assert mask.mask == "dense" and "288 bytes" in capsys.readouterr().err
    q, k, v = tensors(lens=(12, 12), dtype=torch.float32)
    visible = torch.stack([causal(12, 12), causal(12, 12, 3)])[:, None]
    assert close(slt.attention(q, k, v, mask).double(), by_torch(q.double(), k.double(), v.double(), visible)[0], 3e-6)


def test_one_pair_decides():
    mod = lambda b, h, q, k: (q >= k) & ~((q == 101) & (k == 50))  # noqa: E731
    mask = slt.from_mask_mod(mod, 200, 200)
    want = mod(0, 0, torch.arange(200)[:, None], torch.arange(200))
    assert mask.mask != "causal" and np.array_equal(sl.visible(mask.mask, **mask.tokens), want.numpy())


def test_gradients_follow_the_tokens():
    q, k, v = tensors(lens=(7, 7), dtype=torch.float32)
    docs = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    slt.attention(q, k, v, "causal & segment", kv_segment=docs).sum().backward()
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    by_torch(*exact, causal(7, 7) & (docs[:, None] == docs))[0].sum().backward()
    for got, want in zip((q, k, v), exact):
        assert close(got.grad.double(), want.grad, 1e-5)


def test_what_no_rule_says_is_kept_as_a_matrix_with_its_cost(capsys):
    noise = torch.rand(48, 48, generator=torch.Generator().manual_seed(5)) < 0.5
    mask = slt.from_mask_mod(lambda b, h, q, k: noise[q, k], 48, 48)
    assert mask.mask == "dense" and mask.bytes == 48 * 48
    assert f"2304 bytes ({noise.sum()} of 2304 pairs visible)" in capsys.readouterr().err
    q, k, v = tensors(batch=1, lens=(48, 48), dtype=torch.float32)
    assert close(slt.attention(q, k, v, mask).double(), by_torch(q.double(), k.double(), v.double(), noise)[0], 3e-6)
    by_head = slt.from_mask_mod(lambda b, h, q, k: q >= k + 2 * h, 16, 16, num_heads=4)
    assert by_head.dense.shape == (1, 4, 16, 16) and "1024 bytes" in capsys.readouterr().err
    q, k, v = tensors(batch=1, lens=(16, 16), dtype=torch.float32)
    visible = torch.arange(16)[:, None] >= torch.arange(16) + 2 * torch.arange(4)[:, None, None]
    want = by_torch(q.double(), k.double(), v.double(), visible)[0].nan_to_num()
    assert close(slt.attention(q, k, v, by_head).double(), want, 3e-6)


def test_arrays_of_torch_are_read_in_place_and_come_back_as_torch():
    q, k, v = (x.detach() for x in tensors(dtype=torch.float32))
    rows = [x.transpose(1, 2) for x in (q, k, v)]
    got = sl.attention(*rows, "causal")
    assert isinstance(got, torch.Tensor)
    assert torch.equal(got, torch.from_numpy(sl.attention(*(x.numpy() for x in rows), "causal")))
    half = [x.to(torch.bfloat16) for x in rows]
    assert torch.equal(sl.attention(*half, "causal"), sl.attention(*(x.float() for x in half), "causal").bfloat16())
    assert sl.rope(half[0], sl.rope_spec(rotary_dim=6)).dtype == torch.bfloat16
