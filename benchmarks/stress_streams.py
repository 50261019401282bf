#!/usr/bin/env python3
"""Holds a running server under many streams at once, of which some clients leave early.

    benchmarks/stress_streams.py URL [--streams N] [--seconds S] [--leave SHARE] [--max-tokens N]
                                     [--key KEY]

Each stream is a connection of its own: a chat is asked, its events are read and checked, then
the next one begins. A share of them is dropped after some events, or before the first. At the end the
server must have become idle with every page free or cached, its memory must not have grown by more than
2 % since a fifth of the time had passed, and nothing but whole answers and aborts may have been seen.
The KV cache becomes memory as it fills: give the server so few pages (--num-pages) that they are full
in that fifth. Prints a line every ten seconds, and exits with status 1 if something was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
import urllib.parse
import urllib.request
from collections import Counter

GROWTH = 1.02
PROMPTS = [f"Tell me {n} facts about the number {n}." for n in range(2, 60)]


class Stress:
    def __init__(self, options: argparse.Namespace):
        parts = urllib.parse.urlsplit(options.url)
        self.host, self.port = parts.hostname, parts.port or 80
        self.options = options
        self.random = random.Random(1)
        self.counts: Counter[str] = Counter()
        self.events = 0
        self.end = time.monotonic() + options.seconds

    def request(self, max_tokens: int) -> bytes:
        body = json.dumps(
            {
                "messages": [{"role": "user", "content": self.random.choice(PROMPTS)}],
                "max_tokens": max_tokens,
                "stream": True,
            }
        ).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: stress\r\nConnection: close\r\n"
            f"Authorization: Bearer {self.options.key}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def one_stream(self) -> str:
        """Asks once. Returns what became of it."""
        leaves = self.random.random() < self.options.leave
        max_tokens = self.random.randint(1, self.options.max_tokens)
        events_left = self.random.randint(0, max_tokens) if leaves else 1 << 30
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(self.request(max_tokens))
            if leaves and events_left == 0:
                await asyncio.sleep(self.random.random())
                return "left"
            status = await reader.readline()
            if b" 200 " not in status:
                return f"status {status.decode(errors='replace').split()[1:2]}"
            last = b""
            while line := await reader.readline():
                if not line.startswith(b"data: "):
                    continue
                if line.startswith(b'data: {"error"'):
                    return f"error {line.decode(errors='replace').strip()}"
                last = line
                self.events += 1
                events_left -= 1
                if events_left <= 0:
                    return "left"
            return "whole" if last == b"data: [DONE]\n" else "cut off"
        finally:
            writer.close()

    async def slot(self) -> None:
        while time.monotonic() < self.end:
            try:
                outcome = await self.one_stream()
            except OSError as failure:
                outcome = f"connection: {failure!r}"
            self.counts[outcome] += 1

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"{self.options.url}{path}", timeout=60) as reply:
            return reply.read().decode()

    def metric(self, name: str) -> float:
        for line in self.get("/metrics").splitlines():
            if line.split("{")[0].split(" ")[0] == name:
                return float(line.rsplit(" ", 1)[1])
        raise KeyError(name)

    async def watch(self) -> list[tuple[float, float]]:
        """Memory by time, while the streams run."""
        begin = time.monotonic()
        period = min(10.0, self.options.seconds / 20)
        memory = []
        while time.monotonic() < self.end:
            await asyncio.sleep(period)
            resident = await asyncio.to_thread(self.metric, "process_resident_memory_bytes")
            memory.append((time.monotonic() - begin, resident))
            print(
                f"{memory[-1][0]:6.0f} s  {resident / 2**20:8.1f} MiB  {self.events} events  "
                f"{dict(self.counts)}",
                flush=True,
            )
        return memory

    async def run(self) -> bool:
        slots = [asyncio.create_task(self.slot()) for _ in range(self.options.streams)]
        memory = await self.watch()
        await asyncio.gather(*slots)
        return self.verdict(memory)

    def verdict(self, memory: list[tuple[float, float]]) -> bool:
        end = time.monotonic() + 60
        while (now := json.loads(self.get("/health")))["requests"] + now["running"] > 0:
            if time.monotonic() > end:
                print("the server is not idle:", now)
                return False
            time.sleep(0.1)
        early = next(m for t, m in memory if t >= self.options.seconds / 5)
        growth = memory[-1][1] / early
        ledger = now["free_pages"] + now["cached_pages"] - now["total_pages"]
        wrong = {k: n for k, n in self.counts.items() if k not in ("whole", "left")}
        print(
            f"whole {self.counts['whole']}, left {self.counts['left']}, wrong {wrong}; memory grew by "
            f"{100 * (growth - 1):.2f} %; pages missing: {ledger}"
        )
        return not wrong and ledger == 0 and growth <= GROWTH and self.counts["whole"] > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--leave", type=float, default=0.05)
    parser.add_argument("--max-tokens", type=int, default=60)
    parser.add_argument("--key", default="none")
    return 0 if asyncio.run(Stress(parser.parse_args()).run()) else 1


if __name__ == "__main__":
    sys.exit(main())
