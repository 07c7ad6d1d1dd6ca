"""onnxruntime 1.23.0: Attention (opset 23) with two key heads under four query heads, on the CPU.

Report: microsoft/onnxruntime#26057. Query head h reads key head h % 2; the standard repeats each key head.
Seen in 1.23.0; 1.23.2, 1.25.1 and 1.32.0 are right.
Mended: pip install onnxruntime==1.32.0 onnx==1.19.1 "numpy<2.3"
Install: pip install onnxruntime==1.23.0 onnx==1.19.1 "numpy<2.3"
"""
import numpy as np

HEADS, KV_HEADS, TOKENS, DIM = 4, 2, 6, 8


def declared():
    return {"kind": "attention", "num_q_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": DIM, "mask": "causal",
            "q_positions": list(range(TOKENS)), "kv_positions": list(range(TOKENS)), "rope": None, "scale": DIM ** -0.5,
            "softcap": None, "padding": None}


def inputs():
    rng = np.random.default_rng(54)
    return {name: rng.standard_normal((h, TOKENS, DIM)) for name, h in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))}


def subject(q, k, v):
    import onnxruntime
    from onnx import TensorProto, helper

    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=1)
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "qkv"]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph([node], "g", given, [result]), ir_version=10,
                              opset_imports=[helper.make_opsetid("", 23)])
    run = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return run.run(["y"], {n: x[None].astype(np.float32) for n, x in zip("qkv", (q, k, v))})[0][0]
