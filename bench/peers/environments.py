"""Throw-away environments of the rivals, in the cache folder, each with its pinned versions. Nothing is installed into
the system or the tree; what cannot be had is left out, with the reason."""
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
LLAMA = "@node-llama-cpp/linux-x64@3.22.1"


def cache():
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "sightline"


def python(name):
    """The interpreter of an environment with requirements-NAME.txt, made where it is not there."""
    wanted = HERE / f"requirements-{name}.txt"
    folder = cache() / f"peers-{name}-venv"
    program = folder / "bin" / "python"
    # The environment of the tests against PyTorch serves where its versions are the wanted ones.
    tests = cache() / "foreign-venv" / "bin" / "python"
    for candidate in (program, tests):
        if candidate.exists() and has(candidate, wanted):
            return candidate
    print(f"peers: making {folder} ({name}; torch takes 3 GB)", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([program, "-m", "pip", "install", "--no-cache-dir", "--no-compile", "-q", "-r", wanted], check=True)
    return program


def has(program, wanted):
    script = ("import sys, importlib.metadata as m\n"
              "for line in open(sys.argv[1]):\n"
              "    name, version = line.split('==')\n"
              "    assert m.version(name).split('+')[0] == version.strip()\n")
    return subprocess.run([program, "-c", script, wanted], capture_output=True).returncode == 0


def llama_folder(with_amx):
    """llama.cpp's libraries, prebuilt with one kernel library a kind of CPU; without that for AMX on demand."""
    folder = cache() / "peers-llama.cpp"
    plain = folder / "no-amx"
    whole = folder / "package" / "bins" / "linux-x64"
    if not whole.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "pack", "--silent", LLAMA], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        archive = next(folder.glob("*.tgz"))
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        archive.unlink()
    if not plain.exists():
        shutil.copytree(whole, plain, ignore=shutil.ignore_patterns("*sapphirerapids*"))
    return whole if with_amx else plain
