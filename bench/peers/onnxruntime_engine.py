"""onnxruntime: MultiHeadAttention for dense rows, GroupQueryAttention with past and present in one buffer for causal,
chunk and decode rows."""
import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from cases import ROTATION_BYTES, AttentionCase


class Engine:
    def __init__(self, threads):
        self.options = ort.SessionOptions()
        self.options.intra_op_num_threads = threads
        self.options.inter_op_num_threads = 1

    def describe(self):
        return {"version": f"onnxruntime {ort.__version__}", "build": ort.get_build_info()}

    def variants(self, case):
        if not isinstance(case, AttentionCase) or case.backward or case.dtype != "f32":
            return []
        return {"dense": ["onnxruntime MHA"], "causal": ["onnxruntime GQA"]}.get(case.mask, [])

    def prepare(self, case, variant):
        return self.dense(case) if variant.endswith("MHA") else self.grouped(case)

    @staticmethod
    def result(case, out):
        return np.asarray(out).reshape(case.num_q, case.q_heads, case.dim).transpose(1, 0, 2)

    def session(self, node, inputs, outputs):
        graph = helper.make_graph([node], "row", inputs, outputs)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return ort.InferenceSession(model.SerializeToString(), self.options, providers=["CPUExecutionProvider"])

    @staticmethod
    def packed(x, rows):
        """[heads, tokens, dim] -> [1, tokens, heads * dim] of some tokens."""
        return np.ascontiguousarray(x[:, rows].transpose(1, 0, 2).reshape(1, -1, x.shape[0] * x.shape[2]))

    def dense(self, case):
        q, k, v = (self.packed(x, slice(None)) for x in case.arrays())
        node = helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["out"], domain="com.microsoft",
                                num_heads=case.q_heads)
        tensor = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, None)  # noqa: E731
        session = self.session(node, [tensor("q"), tensor("k"), tensor("v")], [tensor("out")])
        out = np.empty_like(q)
        binding = session.io_binding()
        for name, array in (("q", q), ("k", k), ("v", v)):
            binding.bind_cpu_input(name, array)
        binding.bind_ortvalue_output("out", ort.OrtValue.ortvalue_from_numpy(out))

        def body():
            session.run_with_iobinding(binding)
            return binding.get_outputs()[0].numpy()

        return body

    def grouped(self, case):
        q, k, v = case.arrays()
        past = case.num_kv - case.num_q
        node = helper.make_node(
            "GroupQueryAttention", ["q", "k", "v", "past_k", "past_v", "seqlens", "total"],
            ["out", "present_k", "present_v"], domain="com.microsoft", num_heads=case.q_heads, kv_num_heads=case.kv_heads)
        tensor = lambda name, kind=TensorProto.FLOAT: helper.make_tensor_value_info(name, kind, None)  # noqa: E731
        session = self.session(
            node, [tensor(n) for n in ("q", "k", "v", "past_k", "past_v")]
            + [tensor("seqlens", TensorProto.INT32), tensor("total", TensorProto.INT32)],
            [tensor("out"), tensor("present_k"), tensor("present_v")])
        new = slice(past, None)
        values = {"q": self.packed(q, slice(None)), "k": self.packed(k, new), "v": self.packed(v, new),
                  "seqlens": np.array([case.num_kv - 1], np.int32), "total": np.array([case.num_kv], np.int32)}
        copies = max(1, int(ROTATION_BYTES // (k.nbytes + v.nbytes))) if case.is_decode else 1
        bindings, kept = [], []
        for _ in range(copies):
            binding = session.io_binding()
            for name, array in values.items():
                binding.bind_cpu_input(name, array)
            binding.bind_output("out", "cpu")  # first: outputs are handed out in the order they were bound
            for name, cache in (("k", k), ("v", v)):
                buffer = ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(cache[None]))
                kept.append(buffer)
                binding.bind_ortvalue_input(f"past_{name}", buffer)
                binding.bind_ortvalue_output(f"present_{name}", buffer)
            bindings.append(binding)
        turn = [0]

        def body():
            turn[0] = (turn[0] + 1) % copies
            session.run_with_iobinding(bindings[turn[0]])
            return bindings[turn[0]].get_outputs()[0].numpy(), kept

        return lambda: body()[0]
