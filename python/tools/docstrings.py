"""Writes a C++ header with the /// block above each declaration of some headers, by name.

usage: docstrings.py OUT HEADER...

A function or type NAME with a block in a header of folder F becomes `kDoc_F_NAME`; overloads keep the first block. Binding code that asks
for a name without one does not compile.
"""
import re
import sys
from pathlib import Path

NAME = re.compile(r"^(?:\[\[nodiscard\]\]\s*)?(?:inline\s+|constexpr\s+)*"
                  r"(?:(?:struct|class|enum class)\s+(\w+)|[\w:<>,&* ]+?[\s&*](\w+)\s*\()")


def blocks(text):
    lines = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("///") and not stripped.startswith("///<"):
            lines.append(stripped[3:].removeprefix(" "))
        elif stripped and lines:
            found = NAME.match(stripped)
            if found:
                yield found.group(1) or found.group(2), "\n".join(lines)
            lines = []


def main():
    out, headers = Path(sys.argv[1]), sys.argv[2:]
    docs = {}
    for header in headers:
        for name, doc in blocks(Path(header).read_text()):
            docs.setdefault(f"{Path(header).parent.name}_{name}", doc)
    out.parent.mkdir(parents=True, exist_ok=True)
    body = "".join(f'inline constexpr const char* kDoc_{name} = R"__doc({doc})__doc";\n' for name, doc in docs.items())
    out.write_text("// Written by python/tools/docstrings.py.\n#pragma once\n\n" + body)


main()
