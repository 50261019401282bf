"""How a server starts, and how it ends."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time

import pytest
from http_tools import ask, health, open_request, port_in_log, post, read_until, wait_until
from tiny_models import tiny_model

CHAT = "/v1/chat/completions"


def request(max_tokens: int, stream: bool) -> dict:
    return {
        "messages": [{"role": "user", "content": "Count to one thousand."}],
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "stream": stream,
    }


def read_all(sock: socket.socket) -> bytes:
    return read_until(sock, b"\0")


def test_sigterm_ends_an_idle_server_at_once(start_server):
    server = start_server()
    with socket.create_connection(("127.0.0.1", server.port)) as idle:
        begin = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begin < 3
        # A connection that was still waiting to be accepted is reset, one that was is closed.
        with contextlib.suppress(ConnectionResetError):
            assert idle.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))


def test_sigterm_lets_answers_end_and_refuses_new_ones(start_server):
    server = start_server("--drain-timeout", "60")
    stream = open_request(server.port, CHAT, request(300, stream=True))
    whole = open_request(server.port, CHAT, request(300, stream=False))
    with contextlib.closing(stream), contextlib.closing(whole):
        received = read_until(stream, b"\n\n")
        wait_until(lambda: health(server.port)["running"] == 2, 10, "starting")
        server.process.send_signal(signal.SIGTERM)

        body = {"prompt": "hi", "max_tokens": 1}
        wait_until(
            lambda: post(server.port, "/v1/completions", body).status == 503,
            2, "turning requests away",
        )  # fmt: skip
        received += read_all(stream)
        assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert b'"finish_reason":"length"' in received
        assert b'"completion_tokens":300' in read_all(whole)
        assert server.process.wait(timeout=20) == 0


def test_sigterm_ends_long_answers_with_an_error_after_a_while(start_server):
    server = start_server()
    stream = open_request(server.port, CHAT, request(1900, stream=True))
    whole = open_request(server.port, CHAT, request(1900, stream=False))
    with contextlib.closing(stream), contextlib.closing(whole):
        received = read_until(stream, b"\n\n")
        wait_until(lambda: health(server.port)["running"] == 2, 10, "starting")
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        received += read_all(stream)
        answer = read_all(whole)
        if b'"finish_reason":"length"' not in received:  # or the machine is very fast
            assert b'data: {"error":{"message":"the server is shutting down"' in received
            assert answer.startswith(b"HTTP/1.1 503 ")
        assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert server.process.wait(timeout=10) == 0
        assert time.monotonic() - begin < 10


def test_a_second_signal_cuts_answers_off(start_server):
    server = start_server()
    stream = open_request(server.port, CHAT, request(1900, stream=True))
    with contextlib.closing(stream):
        received = read_until(stream, b"\n\n")
        begin = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        server.process.send_signal(signal.SIGINT)
        received += read_all(stream)
        assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert server.process.wait(timeout=10) == 0
        assert time.monotonic() - begin < 4


def test_a_signal_while_a_model_is_loaded_ends_the_process(minisgl_binary, tmp_path):
    folder = shutil.copytree(tiny_model("llama"), tmp_path / "slow")
    (folder / "tokenizer.json").unlink()
    os.mkfifo(folder / "tokenizer.json")  # nobody writes to it: loading takes for ever
    process = subprocess.Popen(
        [minisgl_binary, "serve", "--model", folder, "--port", "0"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    for line in process.stderr:
        if "KV cache:" in line:
            break
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 0
    assert "Stopped while loading" in process.stderr.read()


def test_a_server_that_was_killed_leaves_its_port(start_server, minisgl_binary, sample_model):
    server = start_server()
    stream = open_request(server.port, CHAT, request(1900, stream=True))
    with contextlib.closing(stream):
        read_until(stream, b"\n\n")
        server.process.kill()
        with contextlib.suppress(ConnectionResetError):
            assert not read_all(stream).endswith(b"0\r\n\r\n")
        assert server.process.wait(timeout=10) == -signal.SIGKILL
    again = subprocess.Popen(
        [minisgl_binary, "serve", "--model", sample_model, "--port", str(server.port)],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert port_in_log(again) == server.port
    finally:
        again.terminate()
        assert again.wait(timeout=20) == 0


def test_the_port_is_open_when_answers_are_given_and_not_before(minisgl_binary, sample_model):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [minisgl_binary, "serve", "--model", sample_model, "--port", str(port)],
        stderr=subprocess.DEVNULL,
    )
    try:
        refused = 0
        while True:
            try:
                reply = ask(port, "GET", "/health")
                break
            except ConnectionRefusedError:
                refused += 1
                assert process.poll() is None
                time.sleep(0.02)
        assert refused > 0
        assert reply.status == 200
        assert post(port, CHAT, request(4, stream=False)).status == 200
    finally:
        process.terminate()
        assert process.wait(timeout=20) == 0


def run_serve(binary, *arguments) -> subprocess.CompletedProcess:
    return subprocess.run(
        [binary, "serve", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_port_in_use_ends_the_start_with_one_line(minisgl_binary, sample_model):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = run_serve(minisgl_binary, "--model", sample_model, "--port", port)
    assert result.returncode != 0
    (line,) = [li for li in result.stderr.splitlines() if "in use" in li]
    assert f"port {port}" in line


def test_a_broken_model_ends_the_start_with_one_line(minisgl_binary, sample_model, tmp_path):
    cut = tmp_path / "cut.gguf"
    with sample_model.open("rb") as whole:
        cut.write_bytes(whole.read(1 << 20))
    begin = time.monotonic()
    result = run_serve(minisgl_binary, "--model", cut, "--port", "0")
    assert time.monotonic() - begin < 20
    assert result.returncode != 0
    assert "cut.gguf" in result.stderr.splitlines()[-1]
