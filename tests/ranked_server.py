"""A server of several ranks, and what became of its processes."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence

from http_tools import open_request, read_until, wait_until


def children_of(pid: int) -> list[int]:
    """Processes that `pid` has started."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid:
            found.append(int(entry.name))
    return sorted(found)


def is_alive(pid: int) -> bool:
    """Whether it runs; one that is dead and not yet collected does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class RankedServer:
    """`minisgl serve`, with what was put before it; `ranks` are its further processes."""

    def __init__(self, command: list, env: dict | None = None):
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (open as long as the server)
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
        )
        self.ranks: list[int] = []
        self.port = 0

    def log(self) -> str:
        return os.pread(self._log.fileno(), 1 << 24, 0).decode(errors="replace")

    def wait_for_ranks(self, count: int) -> None:
        wait_until(lambda: len(children_of(self.process.pid)) == count, 20, "starting ranks")
        self.ranks = children_of(self.process.pid)

    def wait_until_ready(self, timeout_s: float = 120) -> "RankedServer":
        def ready() -> bool:
            assert self.process.poll() is None, self.log()
            return "Ready: " in self.log()

        wait_until(ready, timeout_s, "starting")
        self.ranks = children_of(self.process.pid)
        self.port = int(re.search(r"Ready: .*:(\d+)/v1", self.log())[1])
        return self

    def signal_rank(self, number: int, rank: int = 1) -> None:
        os.kill(self.process.pid if rank == 0 else self.ranks[rank - 1], number)

    def wait_for_end(self, timeout_s: float) -> int:
        """The exit status; nothing may be left afterwards."""
        try:
            status = self.process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {timeout_s} s:\n{self.log()}") from None
        wait_until(lambda: not any(map(is_alive, self.ranks)), 2, "the end of the ranks")
        return status

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait_for_end(20)

    def kill(self) -> None:
        for rank in self.ranks:
            if is_alive(rank):
                os.kill(rank, signal.SIGCONT)
        self.process.kill()
        self.process.wait()


class Streams:
    """Streamed answers, read by a thread each, until they end. Together they fit into the pool.

    Made when all have begun: with their first event, or with the head of the reply already."""

    def __init__(self, port: int, count: int, *, prompt: Sequence[int] = (1, 2, 3),
                 max_tokens: int = 4000, wait_for_event: bool = True):  # fmt: skip
        body = {
            "prompt": list(prompt), "max_tokens": max_tokens, "ignore_eos": True, "stream": True,
        }  # fmt: skip
        self.received = [b""] * count
        self._threads = []
        begun = threading.Barrier(count + 1)

        def run(index: int) -> None:
            with open_request(port, "/v1/completions", body) as sock:
                mark = b"\n\n" if wait_for_event else b"\r\n\r\n"
                self.received[index] = read_until(sock, mark)
                begun.wait()
                self.received[index] += read_until(sock, b"\0")

        for index in range(count):
            self._threads.append(threading.Thread(target=run, args=(index,)))
            self._threads[-1].start()
        begun.wait(timeout=60)

    def join(self, timeout_s: float) -> list[bytes]:
        end = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
            assert not thread.is_alive(), "a stream did not end"
        return self.received
