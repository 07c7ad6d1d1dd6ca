"""llama.cpp through its C interface: whole-model rows. Loads the libraries of a folder (libllama and libggml with one
kernel library a CPU kind), as the npm package of node-llama-cpp ships them prebuilt."""
import ctypes
import glob
import os
import time

from cases import ModelCase


class Blob(ctypes.Structure):
    """A structure of llama.h passed by value whose fields this file does not name: at least as large as any."""
    _fields_ = [("bytes", ctypes.c_uint8 * 512)]


class Batch(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * 128)]


class Engine:
    def __init__(self, folder, model, threads):
        self.model_path, self.threads = model, threads
        one = lambda pattern: sorted(glob.glob(os.path.join(folder, pattern)))[0]  # noqa: E731
        ctypes.CDLL(one("libggml-base.so*"), mode=ctypes.RTLD_GLOBAL)
        ggml = ctypes.CDLL(one("libggml.*so*"), mode=ctypes.RTLD_GLOBAL)
        self.lib = lib = ctypes.CDLL(one("libllama.*so*"), mode=ctypes.RTLD_GLOBAL)
        for name, result in (("llama_model_default_params", Blob), ("llama_context_default_params", Blob),
                             ("llama_batch_get_one", Batch), ("llama_model_load_from_file", ctypes.c_void_p),
                             ("llama_init_from_model", ctypes.c_void_p), ("llama_get_memory", ctypes.c_void_p),
                             ("llama_print_system_info", ctypes.c_char_p), ("llama_get_logits", ctypes.c_void_p)):
            getattr(lib, name).restype = result
        lib.llama_memory_seq_rm.restype = ctypes.c_bool
        self.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        lib.llama_log_set(self.quiet, None)
        ggml.ggml_backend_load_all_from_path(folder.encode())
        lib.llama_backend_init()
        self.context = None

    def describe(self):
        return {"version": "v0.5.0 (npm @node-llama-cpp/linux-x64 3.22.1)",
                "build": self.lib.llama_print_system_info().decode().strip()}

    def variants(self, case):
        return ["llama.cpp"] if isinstance(case, ModelCase) and self.model_path else []

    def open(self):
        lib = self.lib
        model = lib.llama_model_load_from_file(self.model_path.encode(), lib.llama_model_default_params())
        if not model:
            raise RuntimeError(f"llama.cpp cannot load {self.model_path}")
        params = lib.llama_context_default_params()
        n_ctx = ctypes.cast(ctypes.byref(params), ctypes.POINTER(ctypes.c_uint32))
        if n_ctx[0] != 512:
            raise RuntimeError("llama.h: llama_context_params does not begin with n_ctx = 512")
        n_ctx[0] = 8192
        self.context = ctypes.c_void_p(lib.llama_init_from_model(ctypes.c_void_p(model), params))
        if not self.context.value:
            raise RuntimeError("llama.cpp makes no context")
        lib.llama_set_n_threads(self.context, ctypes.c_int32(self.threads), ctypes.c_int32(self.threads))
        self.memory = ctypes.c_void_p(lib.llama_get_memory(self.context))

    def decode(self, first, count):
        tokens = (ctypes.c_int32 * count)(*[(first + i) * 31 % 49000 + 3 for i in range(count)])
        batch = self.lib.llama_batch_get_one(tokens, ctypes.c_int32(count))
        if self.lib.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        self.lib.llama_synchronize(self.context)

    def prepare(self, case, _variant):
        if self.context is None:
            self.open()
        self.lib.llama_memory_clear(self.memory, ctypes.c_bool(True))
        for first in range(0, case.depth, 512):
            self.decode(first, min(512, case.depth - first))

        def body():
            start = time.perf_counter()
            if case.is_prompt:
                self.decode(case.depth, case.num_tokens)
            else:
                for i in range(case.num_tokens):
                    self.decode(case.depth + i, 1)
            seconds = time.perf_counter() - start
            if not self.lib.llama_memory_seq_rm(self.memory, ctypes.c_int32(0), ctypes.c_int32(case.depth),
                                                ctypes.c_int32(-1)):
                raise RuntimeError("llama_memory_seq_rm failed")
            return seconds

        return body
