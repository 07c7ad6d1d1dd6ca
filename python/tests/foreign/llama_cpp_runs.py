"""llama.cpp through llama-cpp-python: log-probabilities of texts, and its server as a process of its own.

Weights stay as the file has them: repacked ones take AMX instructions where the CPU lists them, which some virtual
machines list and refuse (a crash of llama.cpp, not a difference in what it computes).
"""
import contextlib
import socket
import subprocess
import sys
import time
import urllib.request

import llama_cpp
import numpy as np

_defaults = llama_cpp.llama_cpp.llama_model_default_params
F32_CACHE = {"type_k": 0, "type_v": 0}  # GGML_TYPE_F32; llama.cpp's default is f16
YARN = {"rope_scaling_type": 2}         # LLAMA_ROPE_SCALING_TYPE_YARN


def _as_stored():
    params = _defaults()
    params.use_extra_bufts = False
    return params


llama_cpp.llama_cpp.llama_model_default_params = _as_stored


def logprobs(path, texts, **options):
    """Log-probabilities of each token but the first, one array a text of ids."""
    model = llama_cpp.Llama(str(path), n_ctx=512, n_batch=512, n_threads=2, logits_all=True, verbose=False, **options)
    rows = []
    try:
        for ids in texts:
            model.reset()
            model.eval(ids)
            logits = np.array(model.scores[:len(ids)], np.float64)
            logits -= logits.max(-1, keepdims=True)
            logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
            rows.append(logits[np.arange(len(ids) - 1), ids[1:]])
    finally:
        model.close()
    return rows


@contextlib.contextmanager
def server(path, *options):
    """The address of `python -m llama_cpp.server --model PATH OPTION...`; the process is gone afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = "import llama_cpp_runs\nfrom llama_cpp.server.__main__ import main\nmain()\n"
    child = subprocess.Popen(
        [sys.executable, "-c", code, "--model", str(path), "--host", "127.0.0.1", "--port", str(port), "--n_ctx", "512",
         "--n_threads", "2", "--verbose", "false", *options], env={"PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(child, address + "/v1/models")
        yield address
    finally:
        child.kill()
        child.communicate()


def _wait(child, address, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if child.poll() is not None:
            raise RuntimeError(f"the server ended with {child.returncode}: {child.stderr.read()[-500:]}")
        with contextlib.suppress(OSError):
            urllib.request.urlopen(address, timeout=5).close()
            return
        time.sleep(0.2)
    raise RuntimeError(f"the server did not answer within {seconds} s")
