#!/usr/bin/env python3
"""Runs the shell blocks of README's section "Find out why" and wants the lines of the text block behind each in what
they print, the first of them first.

    find_out_why.py SOURCE_FOLDER PROGRAM

A block that names model.gguf needs SIGHTLINE_SMOLLM2, and is skipped by name without it.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def main():
    root, program = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    section = (root / "README.md").read_text().split("## Find out why\n", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"```sh\n(.*?)```\n```text\n(.*?)```", section, re.S)
    if len(blocks) < 3 or len(blocks) != section.count("```sh\n"):
        sys.exit("README: a shell block of 'Find out why' without a text block behind it")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        for name in ("examples", "include"):
            (place / name).symlink_to(root / name)
        (place / "sightline").symlink_to(program)
        model = os.environ.get("SIGHTLINE_SMOLLM2")
        if model:
            (place / "model.gguf").symlink_to(model)
        for commands, wanted in blocks:
            if "model.gguf" in commands and not model:
                print(f"SKIPPED (no SIGHTLINE_SMOLLM2):\n{commands}")
                continue
            done = subprocess.run(["bash", "-c", commands], cwd=place, text=True, capture_output=True, timeout=600)
            printed, lines = done.stdout.splitlines(), wanted.splitlines()
            ok = bool(printed) and printed[0] == lines[0] and all(line in printed for line in lines)
            print(f"{'ok' if ok else 'FAILED'}:\n{commands}")
            if not ok:
                failed += 1
                print(f"wanted:\n{wanted}\nprinted:\n{done.stdout}\n{done.stderr}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
