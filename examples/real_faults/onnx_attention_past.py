"""Writes onnx_1.19.0_attention_past.npz: what ONNX's own reference evaluator of release 1.19.0 answers.

    pip install onnx==1.19.0 && python onnx_attention_past.py

Operator Attention (opset 23) with is_causal=1 and 4 cached tokens in past_key and past_value: 3 new tokens ask about
7 keys. Three sequences of random numbers; arrays are [sequence, head, token, dim].
"""
import pathlib

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

NUM_PAST, NUM_NEW, NUM_HEADS, DIM = 4, 3, 2, 8

names = ["q", "k", "v", "past_k", "past_v"]
tensor = lambda name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)  # noqa: E731
node = onnx.helper.make_node("Attention", ["q", "k", "v", "", "past_k", "past_v"], ["out", "all_k", "all_v"], is_causal=1)
graph = onnx.helper.make_graph([node], "attention", [tensor(name) for name in names], [tensor("out")])
model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)])

rng = np.random.default_rng(0)
q = rng.standard_normal((3, NUM_HEADS, NUM_NEW, DIM)).astype(np.float32)
k, v = rng.standard_normal((2, 3, NUM_HEADS, NUM_PAST + NUM_NEW, DIM)).astype(np.float32)
feed = {"q": q, "k": k[:, :, NUM_PAST:], "v": v[:, :, NUM_PAST:], "past_k": k[:, :, :NUM_PAST], "past_v": v[:, :, :NUM_PAST]}
(out,) = ReferenceEvaluator(model).run(None, feed)
name = f"onnx_{onnx.__version__}_attention_past.npz"
np.savez(pathlib.Path(__file__).with_name(name), q=q, k=k, v=v, out=out)
print(name)
