"""Releases of other libraries that shipped a fault, run for real: each in a virtual environment of its own.

A case is a file with declared(), inputs() and subject(**inputs()), and an install line in its docstring; where a
later release is right, a line "Mended:" installs that one. Here are the environments and the runs in them; what the
words of a case mean to Sightline is in museum_words.py.
"""
import ast
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

WORKER = Path(__file__).with_name("museum_worker.py")
NUM_PROBES = 3  # the first is the case's own input


def folder():
    """The museum, where SIGHTLINE_MUSEUM names it: its environments are 13 GB, which nobody wants unasked."""
    named = os.environ.get("SIGHTLINE_MUSEUM")
    return Path(named) if named and Path(named).is_dir() else None


def cases():
    """All files, by number: those of the museum, then those of releases/, which are run where a museum is."""
    if not folder():
        return []
    return sorted(folder().glob("[0-9]*.py")) + sorted(Path(__file__).with_name("releases").glob("[0-9]*.py"))


def slug_of(path):
    """"mask.top_left_alignment" of 02_mask.top_left_alignment_onnx_1.19.0.py; None for a control."""
    words = re.match(r"\d+_([a-z]+\.[a-z_]+?)_[a-z][a-z-]*_\d+(\.\d+)*$", path.stem)
    name = words.group(1)
    return None if name.startswith("control.") else name


def installs(path, mended=False):
    """The install line as lists of arguments to pip install, in order; None where nothing is known to be mended."""
    doc = ast.get_docstring(ast.parse(path.read_text()))
    found = re.search(r"Mended:(.*?)\nInstall:" if mended else r"Install:(.*)", doc, re.S)
    if not found:
        return None
    line = found.group(1)
    line = re.sub(r"\(.*?\)", " ", line).replace(", plus ", " && pip install ")
    parts = [shlex.split(part) for part in line.split("&&")]
    assert all(part[:2] == ["pip", "install"] for part in parts), line
    return [part[2:] for part in parts]


def cache():
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sightline" / "museum"


def _run(*command, path=""):
    env = dict(os.environ, PATH=f"{path}{os.pathsep}{os.environ['PATH']}") if path else None
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=env)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def _pip(python, *arguments):
    _run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-cache-dir", "--no-compile",
         "--disable-pip-version-check", *arguments)


def _torch(python, requirements):
    """PyTorch is gigabytes: one folder per release, which the environments that want it share by a path file."""
    release = next(r for r in requirements if r.startswith("torch=="))
    target = cache() / release.replace("==", "-")
    if not (target / ".whole").exists():
        numpy_too = [r for r in requirements if r.startswith("numpy")]
        _pip(python, "--target", target, release, *numpy_too)
        (target / ".whole").touch()
    return target


def _tools(path):
    """A folder to look for programs in first: one with `clang` where a case needs it and only clang-N is there."""
    if "clang" not in ast.get_docstring(ast.parse(path.read_text())) or shutil.which("clang"):
        return ""
    numbered = [found for n in range(30, 9, -1) if (found := shutil.which(f"clang-{n}"))]
    if not numbered:
        raise RuntimeError("no clang")
    folder = cache() / "tools"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "clang").exists():
        (folder / "clang").symlink_to(numbered[0])
    return folder


def _home(requirements):
    """The folder of an environment, named after the first case that wants it: "60", or "53-mended"."""
    for path in cases():
        for mended in (False, True):
            if installs(path, mended) == requirements:
                return cache() / (path.stem.split("_")[0] + ("-mended" if mended else ""))
    raise ValueError(requirements)


def environment(path, mended=False):
    """The case's environment, made when it is missing: the path of its Python. Cases that install the same share it."""
    _tools(path)
    home = _home(installs(path, mended))
    python = home / "bin" / "python"
    wanted = json.dumps(installs(path, mended))
    made = home / "installed.json"
    if made.exists() and made.read_text() == wanted:
        return python
    _run("python3.11" if sys.version_info[:2] != (3, 11) else sys.executable, "-m", "venv", "--without-pip",
         "--clear", home)
    for requirements in installs(path, mended):
        if any(r.startswith("torch==") for r in requirements):
            target = _torch(python, requirements)
            site = next((home / "lib").glob("python*")) / "site-packages"
            (site / "torch.pth").write_text(f"{target}\n")
            requirements = [r for r in requirements if not r.startswith("torch==")]
        if requirements:
            _pip(python, *requirements)
    made.write_text(wanted)
    return python


def answers(path, mended=False):
    """What the release declares, was asked and answered: (declared, list of probes as dicts of arrays)."""
    python = environment(path, mended)
    key = hashlib.sha256(path.read_bytes() + WORKER.read_bytes()).hexdigest()[:16]
    kept = cache() / f"{path.stem}{'-mended' if mended else ''}-{key}.npz"
    if not kept.exists():
        _run(python, WORKER, path, NUM_PROBES, kept, path=_tools(path))
    with np.load(kept) as arrays:
        declared = json.loads(str(arrays["declared"]))
        probes = [{} for _ in range(int(arrays["num_probes"]))]
        for name in arrays.files:
            if name[0].isdigit():
                idx, what = name.split("/")
                probes[int(idx)][what] = arrays[name]
    return declared, probes
