"""onnxruntime 1.25.1: Attention (opset 23) with a mask of numbers that hides all keys from a query, on the CPU.

Report: microsoft/onnxruntime#28958. The row is NaN; 1.32.0, like the standard's later text, gives 0.
Mended: pip install onnxruntime==1.32.0 onnx==1.19.1 "numpy<2.3"
Install: pip install onnxruntime==1.25.1 onnx==1.19.1 "numpy<2.3"
"""
import numpy as np

HEADS, TOKENS, DIM = 2, 5, 8
VISIBLE = np.tril(np.ones((TOKENS, TOKENS), bool))
VISIBLE[:, 0] = False


def declared():
    return {"kind": "attention", "num_q_heads": HEADS, "num_kv_heads": HEADS, "head_dim": DIM, "mask": "given",
            "given_mask": VISIBLE.tolist(), "q_positions": list(range(TOKENS)), "kv_positions": list(range(TOKENS)),
            "rope": None, "scale": DIM ** -0.5, "softcap": None, "padding": None}


def inputs():
    rng = np.random.default_rng(63)
    return {name: rng.standard_normal((HEADS, TOKENS, DIM)) for name in "qkv"}


def subject(q, k, v):
    import onnxruntime
    from onnx import TensorProto, helper

    node = helper.make_node("Attention", ["q", "k", "v", "mask"], ["y"])
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("q", "k", "v", "mask")]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph([node], "g", given, [result]), ir_version=10,
                              opset_imports=[helper.make_opsetid("", 23)])
    run = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = {n: x[None].astype(np.float32) for n, x in zip("qkv", (q, k, v))}
    feed["mask"] = np.where(VISIBLE, 0, -np.inf).astype(np.float32)
    return run.run(["y"], feed)[0][0]
