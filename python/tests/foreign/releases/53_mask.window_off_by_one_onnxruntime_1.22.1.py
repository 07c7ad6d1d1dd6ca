"""onnxruntime 1.22.1: GroupQueryAttention(local_window_size=3) on the CPU.

Report: microsoft/onnxruntime#25927. The operator declares a window "like Mistral": the token and two before it. Three
before it are visible.
Seen in 1.22.1, 1.23.0 and 1.23.2; 1.24.1, 1.25.1 and 1.32.0 are right.
Mended: pip install onnxruntime==1.32.0 onnx==1.19.1 "numpy<2.3"
Install: pip install onnxruntime==1.22.1 onnx==1.19.1 "numpy<2.3"
"""
import numpy as np

HEADS, KV_HEADS, TOKENS, DIM, WINDOW = 4, 2, 8, 8, 3


def declared():
    return {"kind": "attention", "num_q_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": DIM,
            "mask": f"causal & window({WINDOW})", "q_positions": list(range(TOKENS)),
            "kv_positions": list(range(TOKENS)), "rope": None, "scale": DIM ** -0.5, "softcap": None, "padding": None}


def inputs():
    rng = np.random.default_rng(53)
    return {name: rng.standard_normal((h, TOKENS, DIM)) for name, h in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))}


def subject(q, k, v):
    import onnxruntime
    from onnx import TensorProto, helper

    node = helper.make_node("GroupQueryAttention", ["q", "k", "v", "", "", "last", "total"], ["y", "k2", "v2"],
                            domain="com.microsoft", num_heads=HEADS, kv_num_heads=KV_HEADS, local_window_size=WINDOW)
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "qkv"]
    given += [helper.make_tensor_value_info(n, TensorProto.INT32, None) for n in ("last", "total")]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "k2", "v2")]
    model = helper.make_model(helper.make_graph([node], "g", given, results), ir_version=10, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
    run = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = {n: x.transpose(1, 0, 2).reshape(1, TOKENS, -1).astype(np.float32) for n, x in zip("qkv", (q, k, v))}
    feed.update(last=np.array([TOKENS - 1], np.int32), total=np.array([TOKENS], np.int32))
    return run.run(["y"], feed)[0][0].reshape(TOKENS, HEADS, DIM).transpose(1, 0, 2)
