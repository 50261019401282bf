#!/usr/bin/env python3
"""Fetches a source distribution with pip and unpacks parts of it; nothing of it is built or run.

    tools/fetch_sdist.py NAME VERSION SHA256 DOWNLOADS FOLDER PART...

The archive is kept in DOWNLOADS, and not fetched if it is there. FOLDER then holds its files below
each PART, a path inside its top folder; it appears when it is complete, or not at all. pip takes its
index, proxy and certificates from the user's own configuration.

pip asks the build system of a package about it even if it only downloads it, which may mean minutes
of building that system first. So it gets an answer from a module that stands in for it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv

STAND_IN = """
import os
def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = "{name}-{version}.dist-info"
    os.makedirs(os.path.join(folder, info))
    with open(os.path.join(folder, info, "METADATA"), "w") as out:
        out.write("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return info
"""

# Build systems whose place the module takes.
BACKENDS = ("scikit_build_core.build",)


def pip_command(work: pathlib.Path) -> list[str]:
    """pip of this Python, or of an environment made for it (Debian has venv without pip)."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    venv.create(work / "venv", with_pip=True)
    return [str(work / "venv/bin/python"), "-m", "pip"]


def download(name: str, version: str, sha256: str, work: pathlib.Path) -> pathlib.Path:
    for backend in BACKENDS:
        module = work / "stand_in" / f"{backend.replace('.', '/')}.py"
        module.parent.mkdir(parents=True)
        (module.parent / "__init__.py").touch()
        module.write_text(STAND_IN.format(name=name, version=version))
    requirements = work / "requirements.txt"
    requirements.write_text(f"{name}=={version} --hash=sha256:{sha256}\n")
    command = [*pip_command(work), "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--require-hashes"]
    command += ["--requirement", str(requirements), "--dest", str(work / "archive")]
    environment = os.environ | {"PYTHONPATH": str(work / "stand_in")}
    subprocess.run(command, check=True, env=environment)
    (archive,) = (work / "archive").iterdir()
    return archive


def unpack(archive: pathlib.Path, parts: list[str], folder: pathlib.Path) -> None:
    with tarfile.open(archive) as tar:
        members = []
        for member in tar.getmembers():
            member.name = member.name.partition("/")[2]
            if any(member.name == part or member.name.startswith(part + "/") for part in parts):
                members.append(member)
        found = {part for part in parts for m in members if m.name.startswith(part)}
        if missing := set(parts) - found:
            sys.exit(f"{archive.name} has no {', '.join(sorted(missing))}")
        if hasattr(tarfile, "data_filter"):
            tar.extractall(folder, members, filter="data")
        else:
            tar.extractall(folder, members)


def main() -> None:
    if len(sys.argv) < 7:
        sys.exit(__doc__)
    name, version, sha256, downloads, target, *parts = sys.argv[1:]
    folder = pathlib.Path(target)
    archive = pathlib.Path(downloads) / f"{name}-{version}.tar.gz"
    for parent in (folder.parent, archive.parent):
        parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        work = pathlib.Path(temporary)
        if not archive.exists():
            try:
                shutil.move(download(name, version, sha256, work), archive)
            except subprocess.CalledProcessError as error:
                sys.exit(f"pip could not fetch {name} {version} (exit status {error.returncode})")
        if (found := hashlib.sha256(archive.read_bytes()).hexdigest()) != sha256:
            sys.exit(f"{archive} has the SHA-256 {found}, not {sha256}: delete it")
        unpack(archive, parts, work / "unpacked")
        shutil.rmtree(folder, ignore_errors=True)
        (work / "unpacked").rename(folder)


if __name__ == "__main__":
    main()
