"""Requests that ask for too much, clients that leave, many clients at once."""

import contextlib
import itertools
import threading
import time

import pytest
from http_tools import (
    chat,
    complete,
    health,
    in_parallel,
    open_request,
    read_until,
    wait_idle,
    wait_until,
)

CHAT = "/v1/chat/completions"
LONG = {  # goes on until someone stops it
    "messages": [{"role": "user", "content": "Count to one thousand."}],
    "max_tokens": 1500,
    "ignore_eos": True,
}
ENDLESS = {"type": "array", "minItems": 500, "items": {"type": "string", "maxLength": 20}}


# --- Context and cache ---


@pytest.fixture(scope="module")
def short_server(start_server):
    server = start_server("--max-seq-len-override", "64")
    yield server
    server.stop()


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_longer_than_the_context_gets_400(short_server, stream):
    reply = chat(short_server.port, "ab " * 300, max_tokens=8, stream=stream)
    assert reply.status == 400
    assert reply.error["type"] == "invalid_request_error"
    assert reply.error["code"] == "context_length_exceeded"
    assert reply.error["param"] == "messages"
    assert "64" in reply.error["message"], "both lengths are named"
    assert complete(short_server.port, [5] * 64, max_tokens=8, stream=stream).status == 400
    assert complete(short_server.port, [5] * 4000, max_tokens=8).error["param"] == "prompt"
    assert chat(short_server.port, "hi", max_tokens=4).status == 200
    wait_idle(short_server.port)


def test_what_is_left_of_the_context_limits_the_answer(short_server):
    body = complete(short_server.port, [5] * 63, max_tokens=8, ignore_eos=True).json
    assert body["usage"]["completion_tokens"] == 1
    assert body["choices"][0]["finish_reason"] == "length"
    body = complete(short_server.port, [5] * 40, max_tokens=500, ignore_eos=True).json
    assert body["usage"]["total_tokens"] == 64
    assert body["choices"][0]["finish_reason"] == "length"


def test_more_requests_than_pages_wait_for_their_turn(start_server):
    server = start_server("--page-size", "16", "--num-pages", "8", "--max-running-requests", "64")
    prompts = [list(range(5, 6 + i % 5)) for i in range(40)]
    calls = [lambda p=p: complete(server.port, p, max_tokens=12, ignore_eos=True) for p in prompts]
    for reply in in_parallel(calls):
        assert reply.status == 200
        assert reply.json["usage"]["completion_tokens"] == 12
    wait_idle(server.port)
    server.stop()


def test_a_request_that_fills_the_cache_blocks_nobody_for_ever(start_server):
    server = start_server("--page-size", "1", "--num-pages", "48")
    big = open_request(
        server.port, "/v1/completions", {"prompt": [5] * 47, "max_tokens": 500, "ignore_eos": True}
    )
    with contextlib.closing(big):
        small = complete(server.port, [6] * 5, max_tokens=4, ignore_eos=True)
        assert small.status == 200
        assert small.json["usage"]["completion_tokens"] == 4
        assert read_until(big, b"\r\n").split()[1] in (b"200", b"400")
    assert complete(server.port, [5] * 60, max_tokens=4).status == 400
    wait_idle(server.port)
    server.stop()


def test_arguments_that_are_costly_to_read_are_refused(server):
    wide = "{" + ",".join(f'"k{i}":0' for i in range(60_000)) + "}"
    deep = '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"
    for arguments in (wide, deep):
        call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
        messages = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
        ]
        reply = chat(server.port, messages=messages, max_tokens=1)
        assert reply.status == 400
        assert "arguments" in reply.error["message"]


# --- Clients that leave ---


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("schema", [None, ENDLESS], ids=["free", "constrained"])
def test_a_client_that_leaves_stops_its_generation(server, stream, schema):
    wait_idle(server.port)
    constraint = {"guided_json": schema} if schema else {}
    sock = open_request(server.port, CHAT, {**LONG, "stream": stream, **constraint})
    if stream:
        read_until(sock, b"\n\n")
    wait_until(lambda: health(server.port)["running"] == 1, 5, "starting")
    sock.close()
    wait_until(lambda: health(server.port)["running"] == 0, 2, "noticing that the client left")
    wait_idle(server.port)
    before = health(server.port)["generated_tokens"]
    time.sleep(0.1)
    assert health(server.port)["generated_tokens"] == before, "generation went on"


def test_a_client_that_leaves_the_queue_is_forgotten(start_server):
    server = start_server("--max-running-requests", "1")
    with contextlib.closing(open_request(server.port, CHAT, LONG)):
        wait_until(lambda: health(server.port)["running"] == 1, 5, "starting")
        for stream in (True, False):
            queued = open_request(server.port, CHAT, {**LONG, "stream": stream})
            wait_until(lambda: health(server.port)["waiting"] == 1, 5, "queueing")
            queued.close()
            wait_until(lambda: health(server.port)["waiting"] == 0, 2, "leaving the queue")
    wait_idle(server.port)
    server.stop()


def test_two_hundred_clients_that_leave_leave_nothing_behind(server):
    for i in range(200):
        sock = open_request(server.port, CHAT, {**LONG, "stream": i % 2 == 0})
        if i % 10 == 0:
            read_until(sock, b"\n\n") if i % 20 == 0 else time.sleep(0.05)
        sock.close()
    wait_idle(server.port, timeout_s=20)
    assert chat(server.port, "hi", max_tokens=4).status == 200


def test_leaving_at_any_moment_changes_nobody_elses_answer(start_server):
    """A prompt of several chunks is dropped at many moments; what follows reuses its pages."""
    server = start_server("--max-prefill-length", "32", "--num-pages", "1024")
    followers = [[200 + i] * 20 for i in range(2)]
    asked = {"max_tokens": 8, "temperature": 0, "ignore_eos": True}
    expected = [complete(server.port, p, **asked).json["choices"][0]["text"] for p in followers]
    for delay_ms in (0, 2, 5, 10, 20, 40, 80, 160, 320):
        prompt = [300 + delay_ms] + list(range(10, 409))
        leaving = open_request(
            server.port,
            "/v1/completions",
            {"prompt": prompt, "max_tokens": 300, "ignore_eos": True},
        )
        time.sleep(delay_ms / 1000)
        leaving.close()
        replies = in_parallel([lambda p=p: complete(server.port, p, **asked) for p in followers])
        assert [r.json["choices"][0]["text"] for r in replies] == expected, delay_ms
    wait_idle(server.port)
    server.stop()


# --- Sampling ---


def test_extreme_sampling_values_side_by_side(server):
    prompt = "The capital of France is"
    greedy = complete(server.port, prompt, max_tokens=4, temperature=0).json["choices"][0]["text"]
    cases = [
        {"temperature": t, "top_p": p, "top_k": k, "seed": 3}
        for t, p, k in itertools.product((0, 1e-9, 2), (0, 1e-9, 0.5, 1), (-1, 0, 1, 1 << 40))
    ]
    calls = [lambda c=c: complete(server.port, prompt, max_tokens=4, **c) for c in cases]
    together = in_parallel(calls)
    for case, reply in zip(cases, together, strict=True):
        assert reply.status == 200, (case, reply.body)
        text = reply.json["choices"][0]["text"]
        if case["temperature"] < 1 or case["top_k"] == 1 or case["top_p"] <= 1e-9:
            assert text == greedy, case
    for i in (5, 35, 47):  # a request's neighbours do not change what it draws
        assert calls[i]().json["choices"] == together[i].json["choices"], cases[i]


# --- Many clients ---


def test_health_answers_while_clients_read_slowly_or_not_at_all(server):
    wait_idle(server.port)
    stop = threading.Event()
    body = {**LONG, "max_tokens": 40, "stream": True}
    sockets = [open_request(server.port, CHAT, body) for _ in range(30)]
    idle = [open_request(server.port, "/v1", b"") for _ in range(100)]
    for sock in idle:
        read_until(sock, b"}")

    def read_slowly() -> None:
        while not stop.is_set():
            for sock in sockets[:15]:
                sock.recv(1)
            time.sleep(0.05)

    reader = threading.Thread(target=read_slowly)
    reader.start()
    try:
        slowest = 0.0
        for i in range(20):
            begin = time.monotonic()
            assert health(server.port)["status"] == "ok"
            slowest = max(slowest, time.monotonic() - begin)
            if i % 10 == 0:
                assert chat(server.port, "hi", max_tokens=2).status == 200
        # 0.2 s on a machine of its own; tests share theirs.
        assert slowest < 1.0
    finally:
        stop.set()
        reader.join()
        for sock in sockets + idle:
            sock.close()
    wait_idle(server.port)
