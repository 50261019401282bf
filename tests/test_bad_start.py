"""A start that cannot succeed says why in one line and ends with status 1 or 2."""

import os
import random
import re
import shutil
import socket
import struct
import subprocess

import pytest
from tiny_models import tiny_model


def gguf_string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def gguf_with_tensor_type(type_id: int) -> bytes:
    """A GGUF file of one tensor [32] of this type."""
    string_kind = 8
    return b"".join([
        b"GGUF", struct.pack("<IQQ", 3, 1, 1),
        gguf_string("general.architecture"), struct.pack("<I", string_kind), gguf_string("llama"),
        gguf_string("token_embd.weight"), struct.pack("<IQIQ", 1, 32, type_id, 0),
        bytes(4096),
    ])  # fmt: skip


@pytest.fixture
def fails(minisgl_binary):
    """fails(*arguments) runs the program and returns its one line of complaint."""

    def run(*arguments, prefix=()):
        done = subprocess.run(
            [*prefix, minisgl_binary, *map(str, arguments)],
            capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode in (1, 2), done.stderr
        assert done.stdout == ""
        lines = done.stderr.splitlines()
        assert len(lines) == 1, done.stderr
        assert lines[0].startswith("minisgl: ")
        assert not re.search(r"\[[^]]*\.(cc|h):\d+\]", lines[0]), "a user's fault is not ours"
        return lines[0]

    return run


def test_a_missing_file(fails, tmp_path):
    line = fails("--model", tmp_path / "absent.gguf")
    assert "absent.gguf" in line
    assert "does not exist" in line or "No such file" in line


def test_a_truncated_file(fails, sample_model, tmp_path):
    cut = tmp_path / "cut.gguf"
    with sample_model.open("rb") as whole:
        cut.write_bytes(whole.read(50_000_000))
    line = fails("--model", cut)
    assert "cut.gguf" in line
    assert "50000000" in line.replace(",", "")


def test_random_bytes(fails, tmp_path):
    path = tmp_path / "noise.gguf"
    path.write_bytes(random.Random(1).randbytes(10_000))
    assert "not a GGUF file" in fails("--model", path)


def test_a_wrong_magic(fails, tmp_path):
    path = tmp_path / "archive.gguf"
    path.write_bytes(b"PK\x03\x04" + bytes(1000))
    line = fails("--model", path)
    assert "not a GGUF file" in line
    assert "zip" in line


def test_an_unknown_tensor_type(fails, tmp_path):
    path = tmp_path / "future.gguf"
    path.write_bytes(gguf_with_tensor_type(99))
    line = fails("--model", path)
    assert "99" in line
    assert "Q4_1" in line, "the supported types are listed"


def test_a_port_that_is_taken(fails, sample_model):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = fails("serve", "--model", sample_model, "--port", port)
        assert str(port) in line
        assert "in use" in line


def test_too_little_memory_for_the_pool(fails, sample_model):
    line = fails("--model", sample_model, "--num-pages", 1_000_000_000, "--port", 0)
    assert "not enough memory for the KV cache" in line
    assert "--num-pages" in line


def test_a_context_that_is_too_long(fails, sample_model):
    line = fails("--model", sample_model, "--max-seq-len-override", 100_000, "--port", 0)
    assert "100000" in line
    assert "8192" in line


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--page-sise", "4"], "unknown flag --page-sise; did you mean --page-size?"),
        (["--max-new", "4"], "unknown flag --max-new (see minisgl serve --help)"),
        (["again"], "unexpected argument again (see minisgl serve --help)"),
        (["--port", "99999"], "--port: '99999' is not a whole number from 0 to 65535"),
        (["--page-size", "1.5"], "--page-size: '1.5' is not a whole number of at least 0"),
        (["--num-pages", "3000000000"], "is not a whole number from 0 to 2147483647"),
        (["--page-size", "-1"], "--page-size: '-1' is not a whole number of at least 0"),
        (["--threads", "many"], "--threads: 'many' is not a whole number of at least 0"),
        (["--memory-ratio", "90"], "--memory-ratio: '90' is not a number from 0.01 to 1"),
        (["--cache", "lru"], "'lru' is not known; known are naive, radix"),
        (["--attn", "flash"], "flash"),
        (["--simd", "mmx"], "mmx"),
        (["--kv-cache-dtype", "int4"], "'int4' is not known; known are auto, fp8_e4m3"),
        (
            ["--kv-cache-dtype", "fp8_e4m3", "--device", "cpu"],
            "a KV cache of fp8_e4m3 needs a GPU; on a CPU keys and values are f32, or bf16 with --compute bf16",
        ),
    ],
)
def test_a_bad_flag(fails, sample_model, flags, named):
    assert named in fails("--model", sample_model, "--port", 0, *flags)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        # What is wrong comes before what is missing.
        (
            ["--modle", "x"],
            "unknown flag --modle; did you mean --model? (see minisgl serve --help)",
        ),
        (["serve"], "--model is required (see minisgl serve --help)"),
        (["bench"], "bench needs a command: offline, graphs, sums (see minisgl bench --help)"),
        (
            ["bench", "offlin"],
            "bench has no command 'offlin'; it has offline, graphs, sums (see minisgl bench --help)",
        ),
        (
            ["bench", "offline", "--model", "x", "--num-promts", "2"],
            "unknown flag --num-promts; did you mean --num-prompts? (see minisgl bench offline --help)",
        ),
        (
            ["generate", "--model", "x", "--seed", "one"],
            "--seed: 'one' is not a number that fits (see minisgl generate --help)",
        ),
    ],
)
def test_a_bad_command_line(fails, arguments, line):
    assert fails(*arguments) == "minisgl: " + line


def test_an_unreadable_folder(fails, tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    folder.chmod(0)
    try:
        # Root may read everything: without its capabilities it is as anybody.
        plain = ("setpriv", "--inh-caps=-all", "--bounding-set=-all") if os.geteuid() == 0 else ()
        line = fails("--model", folder, prefix=plain)
    finally:
        folder.chmod(0o700)
    assert "locked" in line
    assert "ermission" in line or "cannot be read" in line


def test_a_folder_without_a_model(fails, tmp_path):
    line = f"minisgl: {tmp_path} has no config.json, so it is no model's folder"
    assert fails("--model", tmp_path) == line
    (tmp_path / "notes.txt").write_text("none")
    model = tmp_path / "Q8_0.gguf"
    model.write_text("GGUF")
    assert fails("--model", tmp_path) == f"{line}; perhaps {model} was meant"
    model.unlink()
    shutil.copytree(tiny_model("llama"), tmp_path / "llama")
    assert fails("--model", tmp_path) == f"{line}; perhaps {tmp_path / 'llama'} was meant"


def test_an_unknown_architecture(fails, tmp_path):
    folder = shutil.copytree(tiny_model("llama"), tmp_path / "bloom")
    config = folder / "config.json"
    config.write_text(config.read_text().replace("LlamaForCausalLM", "BloomForCausalLM"))
    line = fails("--model", folder)
    assert "BloomForCausalLM" in line
    assert "LlamaForCausalLM" in line, "the supported ones are listed"


def test_no_model_at_all(fails):
    assert "--model" in fails("serve")


def test_an_unknown_command(fails):
    assert "sing" in fails("sing")
