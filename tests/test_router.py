"""examples/router.sh: two servers behind SGLang's router, and the death of one of them."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import pytest
from http_tools import Reply, ask, wait_until
from prometheus_client.parser import text_string_to_metric_families

ROOT = pathlib.Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not there")

CONVERSATIONS = 4
TURNS = 3


def four_free_ports() -> int:
    """The first of four ports in a row on which nobody listens."""
    for port in range(23000, 32000, 4):
        try:
            for offset in range(4):
                socket.create_server(("127.0.0.1", port + offset)).close()
        except OSError:
            continue
        return port
    raise AssertionError("no free ports")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def worker_of(example: subprocess.Popen, port: int) -> int:
    """The process id of the server on `port`."""
    children = pathlib.Path(f"/proc/{example.pid}/task/{example.pid}/children").read_text()
    for pid in map(int, children.split()):
        if f"--port\0{port}\0" in pathlib.Path(f"/proc/{pid}/cmdline").read_text():
            return pid
    raise AssertionError(f"no child serves port {port}")


def prompt_tokens(port: int) -> float:
    """Prompt tokens of the server on `port` so far."""
    families = text_string_to_metric_families(ask(port, "GET", "/metrics").body.decode())
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "minisgl:prompt_tokens_total"
    )


@pytest.fixture
def example(minisgl_binary, sample_model, tmp_path):
    """The running example and the router's port."""
    port = four_free_ports()
    with (tmp_path / "log").open("w+") as log:
        process = subprocess.Popen(
            ["bash", ROOT / "examples" / "router.sh", sample_model, str(port)],
            env={**os.environ, "MINISGL_BINARY": str(minisgl_binary), "PYTHON": sys.executable},
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:

            def ready() -> bool:
                assert process.poll() is None, (tmp_path / "log").read_text()
                return listens(port) and ask(port, "GET", "/readiness").status == 200

            wait_until(ready, 120, "both servers are known to the router")
            yield process, port
        finally:
            process.terminate()
            process.wait(timeout=60)


def send(port: int, messages: list, **fields: Any) -> Reply:
    """A chat's next turn, as the router wants it."""
    model = ask(port, "GET", "/v1/models").json["data"][0]["id"]
    body = {"model": model, "messages": messages, "max_tokens": 8, "ignore_eos": True, **fields}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    with contextlib.closing(connection):
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        reply = connection.getresponse()
        return Reply(reply.status, reply.headers, reply.read())


class Conversation:
    def __init__(self, port: int, number: int):
        self.port = port
        self.messages = [{"role": "system", "content": f"{number} " * 40}]
        self.known = 0  # tokens of the turn before

    def turn(self, text: str) -> bool:
        """Asks once more. True if all of the last turn's prompt came from the cache."""
        self.messages.append({"role": "user", "content": text})
        reply = send(self.port, self.messages)
        assert reply.status == 200, reply.body
        message, usage = reply.json["choices"][0]["message"], reply.json["usage"]
        self.messages.append({"role": "assistant", "content": message["content"]})
        stuck = usage["prompt_tokens_details"]["cached_tokens"] >= self.known - 1
        self.known = usage["prompt_tokens"]
        return stuck


def whole_stream(port: int, messages: list) -> bool:
    reply = send(port, messages, stream=True)
    return reply.status == 200 and len(reply.events) > 0


def test_conversations_stick_and_a_killed_server_loses_no_request(example):
    process, port = example
    conversations = [Conversation(port, n) for n in range(CONVERSATIONS)]
    with concurrent.futures.ThreadPoolExecutor(CONVERSATIONS * 2) as pool:
        # At once, so that both servers get some.
        list(pool.map(lambda c: c.turn("Question 0."), conversations))
        for turn in range(1, TURNS):
            for conversation in conversations:
                assert conversation.turn(f"Question {turn}."), "the beginning was not in the cache"
        # Wrong requests are no reason to leave a server out.
        wrong = [send(port, conversations[0].messages, temperature=-1).status for _ in range(12)]
        assert wrong == [400] * len(wrong)

        busier = max((1, 2), key=lambda n: prompt_tokens(port + n))
        os.kill(worker_of(process, port + busier), signal.SIGKILL)
        # One, before the router has looked at its health again; then many at once.
        assert send(port, conversations[0].messages).status == 200
        streams = [pool.submit(whole_stream, port, list(c.messages)) for c in conversations]
        answers = [pool.submit(c.turn, "And then?") for c in conversations]
        assert all(stream.result() for stream in streams)
        for answer in answers:
            answer.result()  # a turn that failed raises
    # They live on at the other server.
    for conversation in conversations:
        assert conversation.turn("Go on.")


def test_the_example_ends_its_servers(example):
    process, port = example
    process.terminate()
    assert process.wait(timeout=60) == 130
    begin = time.monotonic()
    wait_until(lambda: not any(listens(port + n) for n in range(3)), 10, "ports are closed")
    assert time.monotonic() - begin < 10
