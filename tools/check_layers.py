#!/usr/bin/env python3
"""Fails if a file includes what its folder may not see. docs/structure.md explains the order.

    tools/check_layers.py [ROOT]    ROOT: the root of the repository (default: where this file is)

The rules:
 1. A folder of src/ may include itself, what its row of LAYERS names, and what those may include.
 2. Every folder has a row, and a row names only rows above it: there can be no cycle.
 3. Includes of our own are written from the root, "folder/file.h" or "minisgl/file.h": no "../", no
    bare names, no <folder/file.h>. Programs (apps/, benchmarks/, ...) may include their neighbours
    by bare name.
 4. testing/ is for *_test.cc, *_for_test.h, benchmarks and tests only.
 5. include/minisgl/ needs nothing but the C++ standard library and itself.
 6. CUDA's headers are included below folders named cuda/ only.
 7. src/CMakeLists.txt links no layer to one that it may not include.
"""

from __future__ import annotations

import pathlib
import re
import sys

# Layer: the layers it builds on directly. From the bottom to the top.
LAYERS: dict[str, tuple[str, ...]] = {
    "base": (),
    "metrics": ("base",),
    "tensor": ("base",),
    "formats": ("tensor",),
    "hub": ("formats",),
    "pull": ("hub",),
    "tokenizer": ("formats",),
    "comm": ("tensor",),
    "kernels": ("tensor",),
    "core": ("tensor",),
    "kvcache": ("core", "kernels"),
    "attention": ("core", "kernels", "kvcache"),
    "layers": ("attention", "comm", "kernels"),
    "models": ("layers", "formats"),
    "engine": ("models", "kvcache", "attention"),
    "scheduler": ("engine",),
    "chat": ("tokenizer",),
    "grammar": ("tokenizer", "core"),
    "llm": ("scheduler", "chat", "grammar", "comm", "hub"),
    "server": ("llm", "metrics"),
}

# Test helpers. They may see everything, and only tests and benchmarks see them.
TESTING = "testing"

# Folders beside src/ that hold programs: what those build on.
PROGRAMS: dict[str, tuple[str, ...]] = {
    "apps": ("llm", "server", "pull"),
    "examples": ("llm", "server"),
    "benchmarks": (*LAYERS, TESTING),
    "tests": (*LAYERS, TESTING),
    "fuzz": (*LAYERS, TESTING),
}

PUBLIC = "minisgl"  # include/minisgl/, visible to all

SUFFIXES = {".h", ".hpp", ".inc", ".cuh", ".cc", ".cpp", ".cu"}
INCLUDE = re.compile(r'\s*#\s*include\s*(["<])([^">]+)[">]')
CUDA_HEADER = re.compile(r"(cuda|cublas|curand|nvrtc|nccl|cub/|cutlass/|cute/|flashinfer/|mma\.h)")
LINKED = re.compile(
    r"minisgl_layer\(\s*(\w+)(?:\s+DEPENDS\s+([\w\s]*?))?(?:\s+LIBRARIES\b[^)]*)?\)"
)


def visible_from(direct: tuple[str, ...]) -> set[str]:
    """`direct` and all that it builds on."""
    seen: set[str] = set()
    todo = list(direct)
    while todo:
        layer = todo.pop()
        if layer not in seen:
            seen.add(layer)
            todo.extend(LAYERS.get(layer, ()))
    return seen


def check_table() -> list[str]:
    """Rule 2 for LAYERS itself."""
    above: set[str] = set()
    bad = []
    for layer, direct in LAYERS.items():
        bad += [
            f"table: {layer} names {d}, which is not above it" for d in direct if d not in above
        ]
        above.add(layer)
    return bad


def wrong_include(path: pathlib.PurePath, bracket: str, name: str) -> str | None:
    """Why `path` (relative to the root) may not include `name`; None when it may."""
    area = path.parts[0]
    if CUDA_HEADER.match(name) and bracket == "<" and "cuda" not in path.parts[:-1]:
        return f"{name} may be included below a folder cuda/ only"
    if ".." in name.split("/"):
        return f"{name}: write the path from src/"

    there, slash, _ = name.partition("/")
    ours = there in LAYERS or there in (TESTING, PUBLIC)
    if area == "include":
        if (bracket == '"' and there != PUBLIC) or (bracket == "<" and re.search(r"[/.]", name)):
            return f"the public headers must not include {name}"
        return None
    if bracket == "<":
        return f'{name} is ours: write "{name}"' if ours and slash else None
    if not slash:
        return None if area in PROGRAMS else f"{name}: write the path from src/"
    if there == PUBLIC:
        return None
    if not ours:
        return f"{there}/ is not in the table"

    here = path.parts[1] if area == "src" else area
    if here in (there, TESTING):
        return None
    if there == TESTING:
        test = path.stem.endswith(("_test", "_bench", "_for_test"))
        return None if test or TESTING in PROGRAMS.get(here, ()) else "testing/ is for tests only"
    if there not in visible_from(LAYERS[here] if area == "src" else PROGRAMS[here]):
        return f"{here}/ must not include {there}/"
    return None


def check_file(root: pathlib.Path, path: pathlib.Path) -> list[str]:
    """Rules 1 to 6 for one file."""
    relative = path.relative_to(root)
    if relative.parts[0] == "src":
        if len(relative.parts) < 3:
            return [f"{relative}: sources of src/ belong into one of its folders"]
        if relative.parts[1] not in LAYERS and relative.parts[1] != TESTING:
            return [f"{relative}: folder {relative.parts[1]}/ is not in the table"]
    bad = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        reason = wrong_include(relative, match[1], match[2]) if match else None
        if reason:
            bad.append(f"{relative}:{number}: {reason}")
    return bad


def check_links(root: pathlib.Path) -> list[str]:
    """Rule 7."""
    path = root / "src" / "CMakeLists.txt"
    bad = []
    for name, direct in LINKED.findall(path.read_text(encoding="utf-8") if path.exists() else ""):
        if name == TESTING:
            continue
        if name not in LAYERS:
            bad.append(f"src/CMakeLists.txt: {name} is not in the table")
            continue
        for other in direct.split():
            if other not in visible_from(LAYERS[name]):
                bad.append(f"src/CMakeLists.txt: {name} must not link {other}")
    return bad


def check_tree(root: pathlib.Path) -> tuple[int, list[str]]:
    """Number of files looked at, and one line for each breach."""
    bad = check_table() + check_links(root)
    files = [
        path
        for area in ("include", "src", *PROGRAMS)
        for path in sorted((root / area).rglob("*"))
        if path.suffix in SUFFIXES
    ]
    for path in files:
        bad += check_file(root, path)
    return len(files), bad


def counted(n: int, one: str, many: str | None = None) -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"


def main() -> int:
    default = pathlib.Path(__file__).resolve().parent.parent
    root = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else default
    num_files, bad = check_tree(root)
    if num_files == 0:
        bad.append(f"{root}: no sources here")
    for line in bad:
        print(line)
    print(f"layers: {counted(num_files, 'file')}, {counted(len(bad), 'breach', 'breaches')}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
