#!/usr/bin/env python3
"""One measured pass of llama.cpp, through its C interface. compare_llama_cpp.py starts it.

Prints one JSON object with the same meaning as that of `minisgl bench offline --json`. The prompts
are random ids, all sequences are decoded together, and tokens are chosen greedily in C.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import sys
import time

from llama_cpp import llama_cpp as llama


def resident_bytes() -> int:
    status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


class Engine:
    """A model and a context for `sequences` sequences of `length` tokens each."""

    def __init__(self, path: str, threads: int, sequences: int, length: int):
        llama.llama_backend_init()
        self.model = llama.llama_model_load_from_file(
            path.encode(), llama.llama_model_default_params()
        )
        if not self.model:
            sys.exit(f"llama.cpp cannot load {path}")
        params = llama.llama_context_default_params()
        params.n_ctx = sequences * (length + 256 - length % 256)
        params.n_batch = params.n_ubatch = 512
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = threads
        self.context = llama.llama_init_from_model(self.model, params)
        self.greedy = llama.llama_sampler_init_greedy()
        self.vocab_size = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))
        self.batch = llama.llama_batch_init(512, 0, 1)

    def clear(self) -> None:
        llama.llama_memory_clear(llama.llama_get_memory(self.context), True)

    def decode(self, rows: list[tuple[int, int, int, bool]]) -> list[int]:
        """Computes rows (token, position, sequence, wants a token); the tokens chosen."""
        for i, (token, position, sequence, wanted) in enumerate(rows):
            self.batch.token[i] = token
            self.batch.pos[i] = position
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = sequence
            self.batch.logits[i] = wanted
        self.batch.n_tokens = len(rows)
        if status := llama.llama_decode(self.context, self.batch):
            sys.exit(f"llama_decode failed with status {status}")
        return [
            llama.llama_sampler_sample(self.greedy, self.context, i)
            for i, row in enumerate(rows)
            if row[3]
        ]

    def run(self, prompts: list[list[int]], output_len: int) -> tuple[float, float]:
        """Seconds until every answer has begun, and until all have ended."""
        self.clear()
        start = time.perf_counter()
        tokens = []
        for sequence, prompt in enumerate(prompts):
            for first in range(0, len(prompt), 512):
                part = prompt[first : first + 512]
                last = first + len(part) == len(prompt)
                rows = [(token, first + i, sequence, False) for i, token in enumerate(part)]
                if last:
                    rows[-1] = (*rows[-1][:3], True)
                tokens += self.decode(rows)
        first_seconds = time.perf_counter() - start
        for step in range(output_len - 1):
            position = len(prompts[0]) + step
            tokens = self.decode([(t, position, s, True) for s, t in enumerate(tokens)])
        return first_seconds, time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--num-prompts", type=int, default=1)
    parser.add_argument("--input-len", type=int, required=True)
    parser.add_argument("--output-len", type=int, required=True)
    args = parser.parse_args()

    silence = llama.llama_log_callback(lambda *_: None)  # a name: C keeps only its address
    llama.llama_log_set(silence, None)
    start = time.perf_counter()
    engine = Engine(args.model, args.threads, args.num_prompts, args.input_len + args.output_len)
    load_seconds = time.perf_counter() - start

    draw = random.Random(0)
    highest = min(engine.vocab_size, 10_000)

    def prompts(count: int) -> list[list[int]]:
        return [[draw.randrange(highest) for _ in range(args.input_len)] for _ in range(count)]

    engine.run(prompts(1), min(args.output_len, 8))  # warm-up: pages in the weights
    first_seconds, seconds = engine.run(prompts(args.num_prompts), args.output_len)
    prompt_tokens = args.num_prompts * args.input_len
    output_tokens = args.num_prompts * args.output_len
    decoded = output_tokens - args.num_prompts
    print(
        json.dumps(
            {
                "prompt_tokens": prompt_tokens,
                "output_tokens": output_tokens,
                "seconds": seconds,
                "prefill_tokens_per_s": prompt_tokens / first_seconds,
                "decode_tokens_per_s": decoded / (seconds - first_seconds) if decoded else 0.0,
                "output_tokens_per_s": output_tokens / seconds,
                "load_seconds": load_seconds,
                "resident_bytes": resident_bytes(),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
