#!/usr/bin/env python3
"""Runs clang-tidy on every source file that changed since it was last found clean.

    tools/run_clang_tidy.py --clang-tidy PATH --build DIR --cache DIR

A file is looked at again when it, a header of the project that it includes (directly or not), its
compile command, .clang-tidy or the version of clang-tidy changed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


@functools.cache
def text_and_includes(path: pathlib.Path) -> tuple[bytes, tuple[pathlib.Path, ...]]:
    """A file's bytes, and the project's own files that it includes directly."""
    text = path.read_bytes()
    found = []
    for name in INCLUDE.findall(text.decode("utf-8", errors="replace")):
        for folder in (ROOT / "src", ROOT / "include", path.parent):
            if (folder / name).is_file():
                found.append(folder / name)
                break
    return text, tuple(found)


def fingerprint(source: pathlib.Path, command: str, settings: bytes) -> str:
    """Equal for two runs only if clang-tidy would see the same."""
    digest = hashlib.sha256(settings + command.encode())
    todo, seen = [source], set()
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        text, includes = text_and_includes(path)
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + text)
        todo.extend(includes)
    return digest.hexdigest()


def tidy(clang_tidy: str, build: pathlib.Path, source: pathlib.Path) -> str:
    """What clang-tidy found in one file; empty when it is clean."""
    done = subprocess.run(
        [clang_tidy, "--quiet", "-p", build, source], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return ""
    return done.stdout or done.stderr or f"{source}: clang-tidy ended with {done.returncode}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clang-tidy", required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    args = parser.parse_args()

    version = subprocess.run([args.clang_tidy, "--version"], capture_output=True, check=True)
    settings = version.stdout + (ROOT / ".clang-tidy").read_bytes()
    args.cache.mkdir(parents=True, exist_ok=True)

    # A source that is built once for each instruction set has several commands: the first counts.
    commands: dict[pathlib.Path, str] = {}
    for entry in json.loads((args.build / "compile_commands.json").read_text()):
        commands.setdefault(pathlib.Path(entry["file"]), entry["command"])

    todo = {}
    for source, command in sorted(commands.items()):
        stamp = args.cache / fingerprint(source, command, settings)
        if not stamp.exists():
            todo[source] = stamp
    print(f"clang-tidy: {len(todo)} of {len(commands)} files changed", flush=True)

    bad = 0
    jobs = len(os.sched_getaffinity(0))
    with concurrent.futures.ThreadPoolExecutor(max_workers=jobs) as pool:
        runs = {pool.submit(tidy, args.clang_tidy, args.build, s): s for s in todo}
        for done, run in enumerate(concurrent.futures.as_completed(runs), 1):
            source = runs[run]
            if output := run.result():
                bad += 1
                print(output.rstrip(), flush=True)
            else:
                todo[source].touch()
            if sys.stdout.isatty():
                print(
                    f"\r\x1b[K[{done}/{len(todo)}] {source.relative_to(ROOT)}", end="", flush=True
                )
    if sys.stdout.isatty() and todo:
        print("\r\x1b[K", end="")
    print(f"clang-tidy: {bad} of {len(commands)} files have findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
