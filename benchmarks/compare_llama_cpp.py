#!/usr/bin/env python3
"""minisgl and llama.cpp on the same file, threads and token counts, alternating in one run.

    benchmarks/compare_llama_cpp.py [--threads N] [--repeat N] [--json FILE]

Other load on the machine hits both sides, so the ratios are worth more than the rates: each ratio
is the median over pairs of passes that ran one after the other. llama.cpp is llama-cpp-python
0.3.36, which pip compiles for this machine's processor (some 15 minutes, once).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKER = pathlib.Path(__file__).resolve().parent / "llama_cpp_worker.py"
PACKAGE = "llama-cpp-python==0.3.36"


@dataclasses.dataclass(frozen=True)
class Workload:
    """Random prompts, all started together; `rate` names the figure that counts."""

    name: str
    num_prompts: int
    input_len: int
    output_len: int
    rate: str

    def flags(self) -> list[str]:
        return [
            f"--num-prompts={self.num_prompts}",
            f"--input-len={self.input_len}",
            f"--output-len={self.output_len}",
        ]


# 129 tokens of output: the first comes from the prompt's own step, 128 are decoded.
WORKLOADS = (
    Workload("prefill, 512 tokens", 1, 512, 1, "prefill_tokens_per_s"),
    Workload("decode, batch 1, after 128 tokens", 1, 128, 129, "decode_tokens_per_s"),
    Workload("decode, batch 16, after 128 tokens", 16, 128, 65, "decode_tokens_per_s"),
)


def run_json(command: list[str | pathlib.Path]) -> dict:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shown = " ".join(map(str, command))
        sys.exit(f"`{shown}` failed with status {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def llama_python(folder: pathlib.Path) -> pathlib.Path:
    """The Python of an environment that has llama.cpp; makes it when needed."""
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"making {folder}", flush=True)
        venv.create(folder, with_pip=True)
    found = subprocess.run([python, "-c", "import llama_cpp"], capture_output=True, check=False)
    if found.returncode != 0:
        print(f"installing {PACKAGE}: compiles for some 15 minutes", flush=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", PACKAGE], check=True)
    return python


def compare(args: argparse.Namespace, python: pathlib.Path, load: Workload) -> dict:
    """Both sides, `repeat` times in turn."""
    common = ["--model", args.model, "--threads", str(args.threads), *load.flags()]
    ours, theirs = [], []
    for i in range(args.repeat):
        passes = [
            (ours, [args.binary, "bench", "offline", *common, "--repeat", "1", "--json"]),
            (theirs, [python, WORKER, *common]),
        ]
        # The order within a pair changes, so that neither side always has the warmer machine.
        for results, command in passes if i % 2 == 0 else reversed(passes):
            results.append(run_json(command))
    rates = [[r[load.rate] for r in side] for side in (ours, theirs)]
    ratios = sorted(a / b for a, b in zip(*rates, strict=True))
    return {
        **dataclasses.asdict(load),
        "minisgl": statistics.median(rates[0]),
        "llama_cpp": statistics.median(rates[1]),
        "ratio": statistics.median(ratios),
        "ratio_lowest": ratios[0],
        "ratio_highest": ratios[-1],
        "samples": {"minisgl": rates[0], "llama_cpp": rates[1]},
        "llama_cpp_resident_bytes": max(r["resident_bytes"] for r in theirs),
        "llama_cpp_load_seconds": statistics.median(r["load_seconds"] for r in theirs),
    }


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def resident_bytes(pid: int) -> int:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def measure_server(args: argparse.Namespace) -> dict:
    """Seconds from start to the first good /health, and memory after one chat of 100 tokens."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    start = time.monotonic()
    server = subprocess.Popen(
        [args.binary, "serve", "--model", args.model, "--threads", str(args.threads)]
        + ["--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while True:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(f"{url}/health", timeout=5).close()
                break
            if server.poll() is not None or time.monotonic() > start + 120:
                sys.exit("minisgl serve did not become ready")
            time.sleep(0.002)
        ready_seconds = time.monotonic() - start
        ready_bytes = resident_bytes(server.pid)
        body = {
            "messages": [{"role": "user", "content": "Tell me a long story about the sea."}],
            "max_tokens": 100,
        }
        request = urllib.request.Request(
            f"{url}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=300) as reply:
            tokens = json.load(reply)["usage"]["completion_tokens"]
        return {
            "ready_seconds": ready_seconds,
            "resident_bytes_when_ready": ready_bytes,
            "resident_bytes_after_chat": resident_bytes(server.pid),
            "chat_tokens": tokens,
        }
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=30)


def processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def print_table(results: list[dict]) -> None:
    head = ("tokens/s, median", "minisgl", "llama.cpp", "ratio", "lowest .. highest")
    print(f"\n{head[0]:36}{head[1]:>10}{head[2]:>11}{head[3]:>8}   {head[4]}")
    for r in results:
        rates = f"{r['name']:36}{r['minisgl']:10.1f}{r['llama_cpp']:11.1f}"
        print(f"{rates}{r['ratio']:8.2f}   {r['ratio_lowest']:.2f} .. {r['ratio_highest']:.2f}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sample = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    parser.add_argument("--model", type=pathlib.Path, default=sample, help="a GGUF file")
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build" / "minisgl")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeat", type=int, default=5, help="pairs of passes")
    parser.add_argument(
        "--venv",
        type=pathlib.Path,
        default=ROOT / ".cache" / "llama-venv",
        help="Python environment with llama.cpp; made when it is not there",
    )
    parser.add_argument("--json", type=pathlib.Path, help="also write all figures to this file")
    args = parser.parse_args()
    for path in (args.model, args.binary):
        if not path.exists():
            parser.error(f"{path} is not there (./scripts/quickstart makes it)")

    python = llama_python(args.venv)
    print(f"{args.model.name}, {args.threads} threads, {args.repeat} pairs, {processor()}")
    results = []
    for load in WORKLOADS:
        print(f"  {load.name} ...", flush=True)
        results.append(compare(args, python, load))
    server = measure_server(args)
    print_table(results)
    mb = 1e6
    print(
        f"\nminisgl serve: ready {server['ready_seconds']:.2f} s after its start; resident "
        f"{server['resident_bytes_after_chat'] / mb:.0f} MB after a chat of "
        f"{server['chat_tokens']} tokens"
    )
    print(
        f"llama.cpp in a Python process: loaded in {results[1]['llama_cpp_load_seconds']:.2f} s; "
        f"resident {results[1]['llama_cpp_resident_bytes'] / mb:.0f} MB after batch 1"
    )
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        report = {
            "date": datetime.date.today().isoformat(),
            "model": args.model.name,
            "threads": args.threads,
            "repeat": args.repeat,
            "processor": processor(),
            "llama_cpp": PACKAGE,
            "workloads": results,
            "server": server,
        }
        args.json.write_text(json.dumps(report, indent=2) + "\n")
        print(f"written: {args.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
