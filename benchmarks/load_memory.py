#!/usr/bin/env python3
"""Memory and time of loading a checkpoint on one rank and on several.

    benchmarks/load_memory.py BINARY... [--gigabytes G] [--ranks N...] [--unaligned] [--default-pool]
                              [--repeat N] [--folder DIR] [--json]

Writes a Llama of G GB of bfloat16 (default 4; rounded to whole layers) to a temporary folder in DIR,
serves it with each of the programs in turn, on 1 and on 2 ranks (--ranks), and deletes it. For each
rank prints, in MB (10^6 bytes), the most memory that it had resident until the server was ready (VmHWM)
and what it was made of when that much was seen, in samples 10 ms apart: memory of its own (RssAnon)
and pages of files (RssFile); then the memory after loading, and the seconds from the start until
ready. --unaligned writes a header of an odd number of bytes, so that no tensor is in line with its type,
which the format allows. The KV cache has 64 pages and there is one request at a time, so that the
weights are what is measured; --default-pool leaves both to the program. --json prints one object instead.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

HIDDEN, INNER, HEADS = 2048, 8192, 16
# Of a model of gigabytes, and of one small enough for a test.
VOCAB = {"large": 32000, "small": 8192}


def tensor_shapes(vocab: int, num_layers: int) -> dict[str, list[int]]:
    shapes = {
        "model.embed_tokens.weight": [vocab, HIDDEN],
        "lm_head.weight": [vocab, HIDDEN],
        "model.norm.weight": [HIDDEN],
    }
    for layer in range(num_layers):
        scope = f"model.layers.{layer}."
        for name in "qkvo":
            shapes[f"{scope}self_attn.{name}_proj.weight"] = [HIDDEN, HIDDEN]
        for name in ("gate", "up"):
            shapes[f"{scope}mlp.{name}_proj.weight"] = [INNER, HIDDEN]
        shapes[f"{scope}mlp.down_proj.weight"] = [HIDDEN, INNER]
        for name in ("input", "post_attention"):
            shapes[f"{scope}{name}_layernorm.weight"] = [HIDDEN]
    return shapes


def num_bytes(shape: list[int]) -> int:
    return 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)


def total_bytes(vocab: int, num_layers: int) -> int:
    return sum(map(num_bytes, tensor_shapes(vocab, num_layers).values()))


def write_model(folder: pathlib.Path, gigabytes: float, unaligned: bool) -> int:
    """Numbers around 0.01 of both signs. Returns the bytes of the weights."""
    vocab = VOCAB["large" if gigabytes >= 0.5 else "small"]
    one_layer = total_bytes(vocab, 1) - total_bytes(vocab, 0)
    num_layers = max(1, round((gigabytes * 1e9 - total_bytes(vocab, 0)) / one_layer))
    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN, "intermediate_size": INNER,
        "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "vocab_size": vocab,
        "num_hidden_layers": num_layers, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "eos_token_id": 2,
    }  # fmt: skip
    header, at = {}, 0
    for name, shape in tensor_shapes(vocab, num_layers).items():
        header[name] = {
            "dtype": "BF16",
            "shape": shape,
            "data_offsets": [at, at + num_bytes(shape)],
        }
        at += num_bytes(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8 + unaligned)
    draw = random.Random(1)
    numbers = b"".join(
        struct.pack("<H", draw.getrandbits(16) & 0x80FF | 0x3C00) for _ in range(1 << 20)
    )
    (folder / "config.json").write_text(json.dumps(config))
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        left = at
        while left > 0:
            left -= file.write(numbers[:left])
    return at


def read_into_cache(folder: pathlib.Path) -> None:
    """So that no run is the first to read the files."""
    with (folder / "model.safetensors").open("rb", buffering=0) as file:
        while file.read(1 << 24):
            pass


def children_of(pid: int) -> list[int]:
    children = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            children += [int(child) for child in (task / "children").read_text().split()]
    return children


def memory_of(pid: int) -> dict[str, int]:
    """Bytes by their names in /proc/PID/status; nothing of a process that has ended."""
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {
        name: 1024 * int(kilobytes)
        for name, kilobytes in re.findall(r"^(VmHWM|VmRSS|RssAnon|RssFile):\s+(\d+)", text, re.M)
    }


class Watch:
    """What each rank of a server that starts has resident."""

    def __init__(self, server: subprocess.Popen):
        self.server = server
        self.highest: dict[int, dict[str, int]] = {}

    def look(self) -> None:
        for pid in [self.server.pid, *children_of(self.server.pid)]:
            now = memory_of(pid)
            if now.get("VmRSS", 0) > self.highest.get(pid, {}).get("VmRSS", 0):
                self.highest[pid] = now

    def result(self) -> list[dict[str, int]]:
        ranks = []
        for pid, highest in sorted(self.highest.items()):
            end = memory_of(pid)
            if not end:  # a process that served to look at the machine
                continue
            ranks.append({"peak": end["VmHWM"], "anon": highest["RssAnon"],
                          "file": highest["RssFile"], "after": end["VmRSS"]})  # fmt: skip
        return ranks


def measure(binary: str, folder: pathlib.Path, ranks: int, default_pool: bool) -> dict:
    pool = [] if default_pool else ["--num-pages", "64", "--max-running-requests", "1"]
    command = [binary, "serve", "--model", str(folder), "--device", "cpu", "--port", "0",
               "--tp", str(ranks), *pool]  # fmt: skip
    with tempfile.TemporaryFile("w+") as log:
        begin = time.monotonic()
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            watch = Watch(server)
            while True:
                watch.look()
                # pread: the server writes through the same open file, whose position must not move.
                text = os.pread(log.fileno(), 1 << 20, 0).decode(errors="replace")
                if "Ready: " in text:
                    break
                if server.poll() is not None:
                    sys.exit(f"{' '.join(command)} ended with {server.returncode}:\n{text}")
                time.sleep(0.01)
            seconds = time.monotonic() - begin
            found = watch.result()
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()
    if len(found) != ranks:
        sys.exit(f"expected {ranks} processes, found {len(found)}")
    return {"binary": binary, "ranks": ranks, "seconds": round(seconds, 2), "memory": found}


def show(result: dict) -> None:
    for rank, memory in enumerate(result["memory"]):
        columns = "  ".join(f"{name} {value / 1e6:7.0f}" for name, value in memory.items())
        print(f"{result['binary']}  rank {rank} of {result['ranks']}  {columns} MB  "
              f"{result['seconds']:6.2f} s", flush=True)  # fmt: skip


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("binary", nargs="+")
    parser.add_argument("--gigabytes", type=float, default=4)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--unaligned", action="store_true")
    parser.add_argument("--default-pool", action="store_true")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="minisgl_load_") as name:
        folder = pathlib.Path(name)
        size = write_model(folder, options.gigabytes, options.unaligned)
        read_into_cache(folder)
        if not options.json:
            print(f"{size / 1e6:.0f} MB of weights, tensors "
                  f"{'out of' if options.unaligned else 'in'} line with their type")  # fmt: skip
        results = []
        for _ in range(options.repeat):
            for ranks in options.ranks:
                for binary in options.binary:
                    results.append(measure(binary, folder, ranks, options.default_pool))
                    if not options.json:
                        show(results[-1])
    if options.json:
        print(json.dumps({"bytes": size, "results": results}))


if __name__ == "__main__":
    main()
