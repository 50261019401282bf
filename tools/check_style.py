#!/usr/bin/env python3
"""What no formatter checks: length of files and comments, #pragma once, blanks at the ends, marks of a
merge that was not finished.

    tools/check_style.py FILE...

A file of 500 lines or more says why in a comment: "// Long: <reason>".
"""

from __future__ import annotations

import pathlib
import re
import sys

MAX_LINES = 500
MAX_COLUMNS = 100
HEADERS = {".h", ".hpp", ".cuh"}
CXX = HEADERS | {".cc", ".cpp", ".cu", ".inc"}
CONFLICT = re.compile(r"(<{7} |>{7} |={7}$)")
LONG = re.compile(r"^(//|#) Long: \S", re.MULTILINE)


def findings(path: pathlib.Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    bad = []
    if len(lines) - 1 >= MAX_LINES and not LONG.search(text):
        bad.append(f"{path}: {len(lines) - 1} lines (fewer than {MAX_LINES}, or say `Long: why`)")
    if path.suffix in HEADERS and "\n#pragma once\n" not in "\n" + text:
        bad.append(f"{path}: no #pragma once")
    if text and (not text.endswith("\n") or text.endswith("\n\n")):
        bad.append(f"{path}: must end with exactly one line break")
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            bad.append(f"{path}:{number}: blanks at the end of the line")
        if CONFLICT.match(line):
            bad.append(f"{path}:{number}: mark of a merge conflict")
        # clang-format breaks code, and leaves comments to their author. A URL stays whole.
        comment = path.suffix in CXX and line.lstrip().startswith("//") and "://" not in line
        if comment and len(line) > MAX_COLUMNS:
            bad.append(f"{path}:{number}: comment of {len(line)} columns ({MAX_COLUMNS} at most)")
    return bad


def main() -> int:
    bad = [line for name in sys.argv[1:] for line in findings(pathlib.Path(name))]
    for line in bad:
        print(line)
    print(f"style: {len(sys.argv) - 1} files, {len(bad)} finding{'' if len(bad) == 1 else 's'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
