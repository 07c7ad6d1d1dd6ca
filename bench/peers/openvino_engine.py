"""OpenVINO: a model of one node, ScaledDotProductAttention; masks are a constant of the graph."""
import numpy as np
import openvino as ov
from openvino import opset13 as ops

from cases import AttentionCase


class Engine:
    def __init__(self, threads):
        self.core = ov.Core()
        self.threads = threads

    def describe(self):
        capabilities = self.core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        return {"version": f"openvino {ov.__version__}", "build": self.core.get_property("CPU", "FULL_DEVICE_NAME")
                + "; " + " ".join(capabilities)}

    def variants(self, case):
        plain = isinstance(case, AttentionCase) and not case.backward and case.q_heads == case.kv_heads
        return ["openvino"] if plain and case.num_q > 1 else []

    def prepare(self, case, _variant):
        kind = ov.Type.bf16 if case.dtype == "bf16" else ov.Type.f32
        arrays = [x[None] for x in case.arrays()]
        inputs = [ops.parameter(x.shape, kind) for x in arrays]
        if case.mask in ("dense", "causal"):
            node = ops.scaled_dot_product_attention(*inputs, causal=case.mask == "causal")
        else:
            mask = ops.constant(case.visible()[None, None])
            node = ops.scaled_dot_product_attention(*inputs, attention_mask=mask)
        compiled = self.core.compile_model(ov.Model([node], inputs), "CPU", {
            "INFERENCE_NUM_THREADS": self.threads, "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "bf16" if case.dtype == "bf16" else "f32"})
        request = compiled.create_infer_request()
        if case.dtype == "bf16":
            halves = [(x.view(np.uint32) >> 16).astype(np.uint16) for x in arrays]
            tensors = [ov.Tensor(x, x.shape, ov.Type.bf16) for x in halves]
        else:
            halves, tensors = arrays, [ov.Tensor(x, shared_memory=True) for x in arrays]
        for i, tensor in enumerate(tensors):
            request.set_input_tensor(i, tensor)
        kept = (halves, tensors)

        def body():
            request.infer()
            return request.get_output_tensor(0), kept

        return lambda: body()[0]

    @staticmethod
    def result(case, tensor):
        data = tensor.data
        if case.dtype == "bf16" and data.dtype != np.float32:
            data = (np.frombuffer(data.tobytes(), np.uint16).astype(np.uint32) << 16).view(np.float32)
        return np.asarray(data, np.float32).reshape(case.q_heads, case.num_q, case.dim)
