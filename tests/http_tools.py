"""A plain HTTP client for the end-to-end tests: what it returns is what was sent."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import Any


@dataclass
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict:
        """The error object, after a check of its shape."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}, error
        assert isinstance(error["message"], str)
        assert error["message"]
        return error

    @property
    def events(self) -> list[Any]:
        """The events of a stream, parsed; "[DONE]" stays text. Checks every byte of the framing."""
        assert self.headers["Content-Type"].startswith("text/event-stream")
        text = self.body.decode("utf-8")
        assert text.endswith("\n\n")
        events = []
        for frame in text[:-2].split("\n\n"):
            assert frame.startswith("data: "), frame
            assert "\n" not in frame
            data = frame[len("data: ") :]
            events.append(data if data == "[DONE]" else json.loads(data))
        assert events[-1] == "[DONE]"
        assert events.count("[DONE]") == 1
        return events[:-1]


def encoded(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def ask(port: int, method: str, path: str, body: Any = None, timeout: float = 120) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    with contextlib.closing(connection):
        connection.request(method, path, body=None if body is None else encoded(body))
        reply = connection.getresponse()
        return Reply(reply.status, reply.headers, reply.read())


def post(port: int, path: str, body: Any) -> Reply:
    return ask(port, "POST", path, body)


def chat(port: int, text: str = "Say one word.", **fields: Any) -> Reply:
    fields.setdefault("messages", [{"role": "user", "content": text}])
    return post(port, "/v1/chat/completions", fields)


def complete(port: int, prompt: Any, **fields: Any) -> Reply:
    return post(port, "/v1/completions", {"prompt": prompt, **fields})


def health(port: int) -> dict:
    return ask(port, "GET", "/health", timeout=10).json


def open_request(port: int, path: str, body: Any) -> socket.socket:
    """Sends a request and leaves the reply to the caller."""
    data = encoded(body)
    sock = socket.create_connection(("127.0.0.1", port), timeout=60)
    head = f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {len(data)}\r\n\r\n"
    sock.sendall(head.encode() + data)
    return sock


def read_until(sock: socket.socket, mark: bytes) -> bytes:
    """Reads until `mark` has come or the peer has closed."""
    data = b""
    while mark not in data:
        piece = sock.recv(65536)
        if not piece:
            break
        data += piece
    return data


def wait_until(condition, timeout_s: float, what: str) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"{what} took longer than {timeout_s} s"
        time.sleep(0.01)


def wait_idle(port: int, timeout_s: float = 10) -> None:
    """Waits for the end of all requests; then every page is free or cached."""

    now: dict = {}  # one snapshot: a request may still come from a connection that is gone

    def idle() -> bool:
        now.update(health(port))
        return now["running"] == now["waiting"] == now["requests"] == 0

    wait_until(idle, timeout_s, "becoming idle")
    assert now["free_pages"] + now["cached_pages"] == now["total_pages"], now


def port_in_log(process: subprocess.Popen) -> int:
    """Reads the standard error of `minisgl serve` up to the line that names its URL."""
    for line in process.stderr:
        if found := re.search(r"https?://\S+:(\d+)/v1", line):
            return int(found[1])
    raise AssertionError(f"the server ended with status {process.wait()}")


def in_parallel(calls: list) -> list:
    """Runs all calls at once, each on a thread; returns their results in order."""
    results: list[Any] = [None] * len(calls)
    failures = []

    def run(i: int) -> None:
        try:
            results[i] = calls[i]()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results
