"""Clients that break HTTP on purpose, or by bad luck: the server answers or closes, and goes on."""

import contextlib
import json
import os
import pathlib
import random
import re
import socket
import subprocess
import threading
import time

import pytest
from http_tools import ask, chat, health, port_in_log, read_until, wait_idle, wait_until

CHAT = "/v1/chat/completions"
BODY = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}).encode()


@pytest.fixture(scope="module")
def port(start_server):
    server = start_server("--header-timeout", "1", "--request-timeout", "2", "--idle-timeout", "3")
    yield server.port
    server.stop()


@pytest.fixture(scope="module")
def small_port(start_server):
    server = start_server("--max-body-size", "100KB", "--max-connections", "40")
    yield server.port
    server.stop()


@pytest.fixture(autouse=True)
def still_serves(request):
    """Whatever a test did: afterwards the server holds nothing and answers."""
    yield
    name = "small_port" if "small_port" in request.fixturenames else "port"
    number = request.getfixturevalue(name)
    wait_idle(number)
    assert chat(number, "hi", max_tokens=2).status == 200


def exchange(port: int, *pieces: bytes, pause: float = 0, half_close: bool = False) -> bytes:
    """Sends the pieces, reads until the server closes or is silent for a while."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        data = b""
        with contextlib.suppress(ConnectionError, TimeoutError):
            for piece in pieces:
                sock.sendall(piece)
                time.sleep(pause)
            if half_close:
                sock.shutdown(socket.SHUT_WR)
            while more := sock.recv(65536):
                data += more
        return data


def statuses(data: bytes) -> list[int]:
    """Of all responses in `data`."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", data)]


def post(body: bytes, headers: bytes = b"Connection: close\r\n") -> bytes:
    return (
        b"POST %s HTTP/1.1\r\nHost: x\r\n" % CHAT.encode()
        + headers
        + b"Content-Length: %d\r\n\r\n" % len(body)
        + body
    )


# --- Requests that are not HTTP ---


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /health\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"GET /health HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /health HTTP/1.1\r\n: no name\r\n\r\n",
        b"GET /health HTTP/1.1\r\nA B: x\r\n\r\n",
        b"GET /hea\x00lth HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nX: a\x00b\r\n\r\n",
        b"G\x80T /health HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(512),  # a TLS hello
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 1e3\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"ffffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}garbage\r\n",
    ],
)
def test_what_is_not_http_gets_an_error_and_the_connection_is_closed(port, request_bytes):
    data = exchange(port, request_bytes, half_close=True)
    assert all(400 <= status < 500 for status in statuses(data)), data
    if data:
        assert b"Connection: close" in data
        assert b'{"error":{"message":' in data


def test_random_bytes_and_mutilated_requests(port):
    generator = random.Random(7)
    for _ in range(150):
        request = bytearray(post(BODY))
        for _ in range(generator.randrange(1, 6)):
            at = generator.randrange(len(request))
            kind = generator.randrange(3)
            if kind == 0:
                request[at] = generator.randrange(256)
            elif kind == 1:
                del request[at : at + generator.randrange(1, 8)]
            else:
                request[at:at] = generator.randbytes(generator.randrange(1, 8))
        data = exchange(port, bytes(request), half_close=True)
        assert all(status == 200 or 400 <= status < 500 for status in statuses(data)), (
            request, data,
        )  # fmt: skip


# --- Too much, too slow ---


def test_headers_that_trickle_in_are_cut_off_and_harm_nobody(port):
    """Slow loris: many connections that send a header line now and then."""
    stop = threading.Event()
    sockets = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(200)]

    def drip() -> None:
        while not stop.is_set():
            for sock in sockets:
                with contextlib.suppress(OSError):
                    sock.sendall(b"X-A: b\r\n")
            time.sleep(0.2)

    for sock in sockets:
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\n")
    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        assert chat(port, "hi", max_tokens=2).status == 200
        begin = time.monotonic()
        for sock in sockets:
            with contextlib.suppress(ConnectionError):
                assert sock.recv(1) == b""
        assert time.monotonic() - begin < 6
    finally:
        stop.set()
        dripping.join()
        for sock in sockets:
            sock.close()


def test_a_body_that_trickles_in_is_cut_off(port):
    begin = time.monotonic()
    head = b"POST /v1/completions HTTP/1.1\r\nContent-Length: 1000\r\n\r\n"
    data = exchange(port, head, *[b" "] * 40, pause=0.1)
    assert statuses(data) == []
    assert time.monotonic() - begin < 6


def test_huge_headers_and_many_of_them(port):
    assert statuses(exchange(port, b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n")) == [431]
    many = b"".join(b"X-%d: y\r\n" % i for i in range(20_000))
    assert statuses(exchange(port, b"GET /health HTTP/1.1\r\n" + many + b"\r\n")) == [431]
    endless = exchange(port, b"GET /health HTTP/1.1\r\nX: ", *[b"a" * 65536] * 20)
    assert statuses(endless) in ([431], [])  # the reply may be lost when the server closes


def test_bodies_over_the_limit(small_port):
    assert ask(small_port, "POST", CHAT, b" " * 102_400).status == 400
    assert ask(small_port, "POST", CHAT, b" " * 102_401).status == 413
    chunks = [b"2000\r\n" + b" " * 8192 + b"\r\n"] * 20
    head = b"POST %s HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" % CHAT.encode()
    assert statuses(exchange(small_port, head, *chunks)) == [413]


def test_connections_over_the_limit(small_port):
    with contextlib.ExitStack() as stack:
        held = [
            stack.enter_context(socket.create_connection(("127.0.0.1", small_port), timeout=5))
            for _ in range(40)
        ]
        for sock in held[-2:]:
            sock.sendall(b"GET /v1 HTTP/1.1\r\n\r\n")
        refused = exchange(small_port, b"GET /v1 HTTP/1.1\r\n\r\n")
        assert statuses(refused) == [503]
        assert b"Retry-After: " in refused
    wait_until(lambda: ask(small_port, "GET", "/v1").status == 200, 5, "closing them")


# --- Unusual, but right ---


def test_pipelined_requests_are_answered_in_order(port):
    request = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
    data = exchange(port, request * 20 + post(BODY, b"") + request + post(BODY))
    assert statuses(data) == [200] * 23
    assert data.count(b'"choices"') == 2


def test_a_client_that_expects_continue(port):
    head = post(BODY, b"Expect: 100-continue\r\nConnection: close\r\n")
    head, body = head[: -len(BODY)], head[-len(BODY) :]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(head)
        assert read_until(sock, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(body)
        assert statuses(read_until(sock, b"\0")) == [200]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(head)  # and then never sends the body
        read_until(sock, b"\r\n\r\n")


def test_a_request_in_single_bytes(port):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in post(BODY):
            sock.sendall(bytes([byte]))
        assert statuses(read_until(sock, b"\0")) == [200]


def test_half_closed_sockets(port):
    # A client that closes its sending side has gone, as far as anyone can tell.
    data = exchange(port, post(BODY.replace(b"2}", b"1500}")), half_close=True)
    assert statuses(data) in ([], [200])
    assert exchange(port, b"", half_close=True) == b""
    assert all(s < 500 for s in statuses(exchange(port, post(BODY)[:-5], half_close=True)))
    assert all(s < 500 for s in statuses(exchange(port, b"POST /v1/comp", half_close=True)))


def test_sockets_that_are_reset(port):
    for size in (0, 10, 60, len(post(BODY)) - 1, len(post(BODY))):
        for _ in range(10):
            sock = socket.create_connection(("127.0.0.1", port), timeout=5)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            sock.sendall(post(BODY)[:size])
            sock.close()  # with linger 0: a reset


# --- Bodies ---


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"messages":[{"role":"user","content":"\xff\xc0\x80"}]}',
        b'{"messages":[{"role":"user","content":"\xed\xa0\x80"}]}',
        b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"messages":[{"role":"user","content":"hi"}],"max_tokens":1e999}',
        b'{"messages":[{"role":"user","content":"hi"}],"max_tokens":' + b"9" * 10_000 + b"}",
        b'{"messages":[{"role":"user","content":"hi"}]',
        b"{" * 100_000,
        b'"' * 100_000,
        b"\x00" * 1000,
    ],
)
def test_bodies_that_no_client_should_send(port, body):
    assert 400 <= ask(port, "POST", CHAT, body).status < 500


# --- Other addresses, and what is left ---


@pytest.mark.parametrize(
    ("host", "addresses"), [("::1", ["::1"]), ("[::1]", ["::1"]), ("::", ["::1", "127.0.0.1"])]
)
def test_ipv6(port, minisgl_binary, sample_model, host, addresses):
    if not pathlib.Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    process = subprocess.Popen(
        [minisgl_binary, "serve", "--model", sample_model, "--host", host, "--port", "0"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        number = port_in_log(process)
        for address in addresses:
            with socket.create_connection((address, number), timeout=30) as sock:
                sock.sendall(post(BODY))
                assert statuses(read_until(sock, b"\0")) == [200]
    finally:
        process.terminate()
        assert process.wait(timeout=20) == 0


def test_nothing_leaks(port):
    """Open files and memory after several rounds of bad clients are those after the first."""

    def abuse() -> None:
        for _ in range(60):
            exchange(port, b"nonsense\r\n\r\n")
            exchange(port, post(b"{"))
            sock = socket.create_connection(("127.0.0.1", port), timeout=5)
            sock.sendall(post(BODY.replace(b"2}", b"1500}"), b""))
            sock.close()
        wait_idle(port)

    def process() -> tuple[float, float]:
        text = ask(port, "GET", "/metrics").body.decode()
        values = dict(li.rsplit(" ", 1) for li in text.splitlines() if not li.startswith("#"))
        return float(values["process_open_fds"]), float(values["process_resident_memory_bytes"])

    def quiet_fds() -> bool:
        return process()[0] <= fds

    abuse()
    wait_until(lambda: health(port)["requests"] == 0, 10, "ending")
    time.sleep(3.5)  # the idle timeout
    fds, memory = process()
    for _ in range(3):
        abuse()
    wait_until(quiet_fds, 10, "closing connections")
    assert process()[1] <= memory * 1.05 + 4e6, os.getpid()
