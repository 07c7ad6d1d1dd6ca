"""What a Hugging Face config declares about the attention of each layer. Reads the config alone, never the code."""
from ._spec import attention_spec, rope_spec

# Families whose code pairs neighbours; everyone else's weights pair halves.
_INTERLEAVED = {"cohere", "cohere2", "glm", "glm4", "helium", "ernie4_5"}
_SCALINGS = {"default": None, "linear": {"factor": "factor"},
             "llama3": {"factor": "factor", "low_freq_factor": "low_freq_factor",
                        "high_freq_factor": "high_freq_factor",
                        "original_context": "original_max_position_embeddings"}}


def declared_spec(config, layer, *, num_q_heads, num_kv_heads, qk_head_dim, v_head_dim, packed=False):
    """The AttentionSpec of one layer of a decoder, from its config and the shapes of its arrays.

    Understands layer_types and sliding_window, attn_logit_softcapping, query_pre_attn_scalar, attention_multiplier,
    rope_parameters (by layer type too) of the kinds default, linear and llama3, partial_rotary_factor,
    no_rope_layers. ValueError for other kinds of rotation: then the spec must be given. Sinks and ALiBi are
    parameters, not config, and are not looked for.
    """
    kinds = getattr(config, "layer_types", None)
    kind = kinds[layer] if kinds else None
    window = getattr(config, "sliding_window", None)
    mask = "causal"
    if kind == "chunked_attention":
        mask += f" & chunk({config.attention_chunk_size})"
    elif window and (kind == "sliding_attention" or (kinds is None and getattr(config, "use_sliding_window", True))):
        mask += f" & window({window})"
    if packed:
        mask += " & segment"
    scalar = getattr(config, "query_pre_attn_scalar", None) or qk_head_dim
    scale = getattr(config, "attention_multiplier", None) or scalar ** -0.5
    rope = "none" if _is_unrotated(config, layer, kind) else _rope(config, kind, qk_head_dim)
    return attention_spec(num_q_heads=num_q_heads, num_kv_heads=num_kv_heads, qk_head_dim=qk_head_dim,
                          v_head_dim=v_head_dim, mask=mask, rope=rope, softmax_scale=scale,
                          logit_softcap=getattr(config, "attn_logit_softcapping", None) or 0.0)


def _is_unrotated(config, layer, kind):
    """A layer without rotation in a model that rotates: `no_rope_layers` marks it with 0; Cohere 2's global ones."""
    marks = getattr(config, "no_rope_layers", None)
    return (kind == "no_rope" or bool(marks and not marks[layer])
            or (config.model_type == "cohere2" and kind == "full_attention"))


def _rope(config, kind, dim):
    given = getattr(config, "rope_parameters", None)
    if not given:
        return "none"
    given = given.get(kind, given) if kind else given
    scaling = given.get("rope_type", "default")
    if scaling not in _SCALINGS:
        raise ValueError(f"rope_type {scaling!r} is not read from a config here: give the spec")
    names = _SCALINGS[scaling]
    partial = given.get("partial_rotary_factor", getattr(config, "partial_rotary_factor", None)) or 1.0
    return rope_spec(rotary_dim=int(dim * partial), theta=given["rope_theta"],
                     pairing="interleaved" if config.model_type in _INTERLEAVED else "half_split",
                     scaling=names and {"kind": scaling, **{ours: given[theirs] for ours, theirs in names.items()}})
