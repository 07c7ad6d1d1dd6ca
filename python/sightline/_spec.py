"""Declarations: attention and rotations as plain data."""
import json
import re

from ._core import AttentionSpec, RopeSpec


def rope_spec(*, rotary_dim, pairing="half_split", theta=10000.0, scaling=None, **more):
    """A RopeSpec from its most used fields; `more` are other members of its JSON form.

    rotary_dim  leading components of a head that turn; the others pass through
    pairing     "half_split" (i with i + rotary_dim / 2: Hugging Face weights) or "interleaved" (2i with 2i + 1)
    scaling     members of RopeScaling by name, for example {"kind": "linear", "factor": 2.0}
    more        cos_sin_magnitude, cache_stage, position_policy, length_policy

    ValueError for what does not fit.
    """
    rope = {"pairing": pairing, "rotary_dim": rotary_dim, "theta": float(theta), **more}
    if scaling is not None:
        rope["scaling"] = scaling
    return RopeSpec.from_json(json.dumps(rope, allow_nan=False))


def attention_spec(*, num_q_heads, num_kv_heads=None, qk_head_dim, v_head_dim=None, mask="causal", rope="none",
                   rotary_dim=None, theta=10000.0, softmax_scale=None, logit_softcap=0.0, alibi_slopes=None,
                   sink_logits=None, **more):
    """An AttentionSpec from its most used fields; `more` are whole members of its JSON form.

    rope: "none", "interleaved" (neighbours turn together), "half_split", or a RopeSpec. ValueError for what does
    not fit.
    """
    spec = {"heads": {"num_q_heads": num_q_heads, "num_kv_heads": num_kv_heads or num_q_heads,
                      "qk_head_dim": qk_head_dim, "v_head_dim": v_head_dim or qk_head_dim},
            "mask": mask}
    if isinstance(rope, RopeSpec):
        spec["rope"] = json.loads(rope.to_json())
    elif rope != "none":
        spec["rope"] = {"pairing": rope, "rotary_dim": rotary_dim or qk_head_dim, "theta": float(theta)}
    score = {}
    if softmax_scale is not None:
        score["softmax_scale"] = float(softmax_scale)
    if logit_softcap:
        score["logit_softcap"] = float(logit_softcap)
    if alibi_slopes is not None:
        score["alibi_slopes"] = [float(x) for x in alibi_slopes]
    if sink_logits is not None:
        score["sink_logits"] = [float(x) for x in sink_logits]
    if score:
        spec["score"] = score
    spec.update(more)
    return AttentionSpec.from_json(json.dumps(spec, allow_nan=False))


def spec_for(q, k, v, spec):
    """`spec` itself, or a mask's text with the heads of the arrays."""
    if not isinstance(spec, str):
        return spec
    return attention_spec(num_q_heads=q.shape[-2], num_kv_heads=k.shape[-2], qk_head_dim=q.shape[-1],
                          v_head_dim=v.shape[-1], mask=spec)


def uses_dense(spec):
    """True when the mask asks for the caller's matrix itself."""
    return re.search(r"\bdense\b", spec.mask) is not None


def with_dense(spec):
    """The spec with `& dense` at the end of its mask."""
    fields = json.loads(spec.to_json())
    fields["mask"] = f"({spec.mask}) & dense"
    return AttentionSpec.from_json(json.dumps(fields))
