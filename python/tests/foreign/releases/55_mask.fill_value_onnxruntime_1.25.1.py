"""onnxruntime 1.25.1: Attention (opset 23) with softcap=2 and is_causal=1, on the CPU.

Report: microsoft/onnxruntime#28379. The mask is added before the cap, which lifts the scores of hidden keys from minus
infinity to -2.
Seen in 1.23.0, 1.23.2 and 1.25.1; 1.32.0 is right.
Mended: pip install onnxruntime==1.32.0 onnx==1.19.1 "numpy<2.3"
Install: pip install onnxruntime==1.25.1 onnx==1.19.1 "numpy<2.3"
"""
import numpy as np

HEADS, TOKENS, DIM, SOFTCAP = 2, 6, 8, 2.0


def declared():
    return {"kind": "attention", "num_q_heads": HEADS, "num_kv_heads": HEADS, "head_dim": DIM, "mask": "causal",
            "q_positions": list(range(TOKENS)), "kv_positions": list(range(TOKENS)), "rope": None, "scale": DIM ** -0.5,
            "softcap": SOFTCAP, "padding": None}


def inputs():
    rng = np.random.default_rng(55)
    return {name: rng.standard_normal((HEADS, TOKENS, DIM)) for name in "qkv"}


def subject(q, k, v):
    import onnxruntime
    from onnx import TensorProto, helper

    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=1, softcap=SOFTCAP)
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "qkv"]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph([node], "g", given, [result]), ir_version=10,
                              opset_imports=[helper.make_opsetid("", 23)])
    run = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return run.run(["y"], {n: x[None].astype(np.float32) for n, x in zip("qkv", (q, k, v))})[0][0]
