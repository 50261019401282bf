"""The steps of deploy/Containerfile, run without a container engine: each stage is a folder that
debootstrap made, RUN is a chroot. Takes a quarter of an hour, root and a Debian mirror, so it is run when
it is asked for: MINISGL_TEST_CONTAINER=1. MINISGL_TEST_CCACHE names a folder of ccache for its build,
which may hold what a build/ of this machine compiled with MINISGL_CUDA=OFF.
"""

import ast
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys

import pytest
from http_tools import chat, wait_until

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIRROR = os.environ.get("MINISGL_TEST_DEBIAN_MIRROR", "http://deb.debian.org/debian")
CACHE = os.environ.get("MINISGL_TEST_CCACHE")
LOCAL_AUTHORITIES = pathlib.Path("/usr/local/share/ca-certificates")

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("MINISGL_TEST_CONTAINER") != "1", reason="MINISGL_TEST_CONTAINER is not 1"
    ),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("debootstrap") is None,
        reason="needs root and debootstrap",
    ),
    pytest.mark.timeout(7200),
]


def stages() -> list[list[tuple[str, str]]]:
    """Instructions and their arguments, stage by stage; the first of each is FROM."""
    text = (ROOT / "deploy" / "Containerfile").read_text()
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    lines = re.sub(r"\\\n", " ", text).splitlines()
    result: list[list[tuple[str, str]]] = []
    for line in filter(str.strip, lines):
        word, rest = line.split(None, 1)
        if word == "FROM":
            result.append([])
        result[-1].append((word, rest.strip()))
    return result


def network_settings() -> dict[str, str]:
    """What this machine needs to reach the network, as variables: its proxies, and what pip is told of
    indexes and certificates by whatever file or variable."""
    settings = {k: v for k, v in os.environ.items() if k.lower().endswith("_proxy")}
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        name = name.rpartition(".")[2].upper().replace("-", "_")
        if name in ("INDEX_URL", "EXTRA_INDEX_URL", "TRUSTED_HOST", "CERT", "PROXY", "TIMEOUT"):
            settings[f"PIP_{name}"] = ast.literal_eval(value)
    return settings


class Folder:
    """One stage's file system."""

    def __init__(self, path: pathlib.Path, base: pathlib.Path):
        subprocess.run(["cp", "--archive", base, path], check=True)
        shutil.copy("/etc/resolv.conf", path / "etc" / "resolv.conf")
        # Authorities that this machine trusts beside Debian's: ca-certificates takes them in.
        if LOCAL_AUTHORITIES.exists():
            target = path / LOCAL_AUTHORITIES.relative_to("/")
            shutil.copytree(LOCAL_AUTHORITIES, target, dirs_exist_ok=True)
        self.path = path
        self.env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        self.help: dict[str, str] = network_settings()  # variables of the build, not of the image
        self.user = "0"
        self.entrypoint: list[str] = []

    def run(self, command: str) -> None:
        enter = ["chroot", self.path, "/bin/sh", "-c", command]
        if (self.path / "ccache").exists():  # there for this command alone, even if it is killed
            mount = 'mount --bind "$0" "$1" && shift && exec "$@"'
            enter = ["unshare", "--mount", "sh", "-c", mount, CACHE, self.path / "ccache", *enter]
        subprocess.run(enter, env=self.env | self.help, check=True)

    def use_compiler_cache(self) -> None:
        """Has the project's build find ccache with what is in the folder CACHE."""
        self.run("apt-get update && apt-get install --yes --no-install-recommends ccache")
        (self.path / "ccache").mkdir()
        # Of what a key depends on, only the compiler and the source shall count.
        self.help |= {"CCACHE_DIR": "/ccache", "CCACHE_BASEDIR": "/", "CCACHE_NOHASHDIR": "1"}
        self.help |= {name: os.environ[name] for name in ("LANG", "LC_ALL") if name in os.environ}

    def follow(self, word: str, rest: str, others: dict[str, "Folder"]) -> None:
        if word == "RUN":
            self.run(rest)
        elif word == "COPY" and rest.startswith("--from="):
            stage, source, target = re.fullmatch(r"--from=(\S+) (\S+) (\S+)", rest).groups()
            subprocess.run(
                ["cp", "--archive", f"{others[stage].path}{source}.", f"{self.path}{target}"],
                check=True,
            )
        elif word == "COPY":
            assert rest == ". /source"
            (self.path / "source").mkdir()
            files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
            packed = subprocess.run(
                ["tar", "--create", "--null", "--files-from=-"],
                cwd=ROOT, input=files.stdout, capture_output=True, check=True,
            )  # fmt: skip
            subprocess.run(
                ["tar", "--extract", "--directory", self.path / "source"],
                input=packed.stdout, check=True,
            )  # fmt: skip
        elif word == "ENV":
            self.env |= dict(pair.split("=", 1) for pair in rest.split())
        elif word == "USER":
            self.user = rest
        elif word == "ENTRYPOINT":
            self.entrypoint = json.loads(rest)
        else:
            assert word in ("FROM", "WORKDIR", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "CMD")


def test_the_steps_of_the_container_file_make_a_server(tmp_path, sample_model):
    base = tmp_path / "base"
    subprocess.run(["debootstrap", "--variant=minbase", "bookworm", base, MIRROR], check=True)
    folders: dict[str, Folder] = {}
    for number, stage in enumerate(stages()):
        assert "docker.io/library/debian:bookworm" in stage[0][1]
        name = stage[0][1].partition(" AS ")[2] or str(number)
        folder = folders[name] = Folder(tmp_path / name, base)
        for word, rest in stage:
            folder.follow(word, rest, folders)
            if CACHE and (word, rest) == ("COPY", ". /source"):
                folder.use_compiler_cache()
    assert folder.user != "0", "the program does not run as root"
    (folder.path / "models").mkdir()
    shutil.copy(sample_model, folder.path / "models" / "model.gguf")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        ["chroot", f"--userspec={folder.user}", folder.path, *folder.entrypoint,
         "--model", "/models/model.gguf", "--port", str(port)],
        env=folder.env,
    )  # fmt: skip
    try:

        def ready() -> bool:
            try:
                return chat(port, "hi", max_tokens=2).status == 200
            except ConnectionError:
                assert process.poll() is None
                return False

        wait_until(ready, 120, "becoming ready")
    finally:
        process.terminate()
    assert process.wait(timeout=30) == 0
