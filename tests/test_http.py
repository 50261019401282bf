"""The HTTP protocol byte by byte: errors, framing, finish reasons, limits of requests."""

import http.client
import json
import socket

import pytest
from http_tools import Reply, ask, chat, complete, post, read_until, wait_idle

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hi"}]


def alive(port: int) -> None:
    assert chat(port, "hi", max_tokens=4).status == 200
    wait_idle(port)


# --- Errors ---


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": MESSAGES, "max_tokens": "8"}, "max_tokens"),
        ({"messages": MESSAGES, "max_tokens": -1}, "max_tokens"),
        ({"messages": MESSAGES, "stream": "true"}, "stream"),
        ({"messages": MESSAGES, "temperature": -1}, "temperature"),
        ({"messages": MESSAGES, "temperature": 3, "stream": True}, "temperature"),
        ({"messages": MESSAGES, "top_p": 1.5}, "top_p"),
        ({"messages": MESSAGES, "n": 0}, "n"),
        ({"messages": MESSAGES, "logprobs": 1}, "logprobs"),
        ({"messages": MESSAGES, "top_logprobs": 3}, "top_logprobs"),
        ({"messages": MESSAGES, "logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"messages": MESSAGES, "response_format": {"type": "xml"}}, "response_format"),
        ({"messages": MESSAGES, "presence_penalty": 3}, "presence_penalty"),
        ({"messages": MESSAGES, "logit_bias": {"5": 1000}}, "logit_bias"),
        ({"messages": MESSAGES, "logit_bias": {"-1": 1}}, "logit_bias"),
        ({"messages": MESSAGES, "tools": [{"type": "function"}]}, "tools[0].function"),
        ({"messages": MESSAGES, "tool_choice": "required"}, "tool_choice"),
        ({"messages": MESSAGES, "n": 2, "best_of": 1}, "best_of"),
        ({"messages": MESSAGES, "stop": [""]}, "stop"),
        ({"messages": MESSAGES, "continue_final_message": True}, "continue_final_message"),
        ({"messages": [], "stream": True}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({}, "messages"),
        (b'{"model":', None),
        (b"", None),
        (b"[]", None),
        (b'{"messages":"\xff\xfe"}', None),
        (b'{"a":' + b"[" * 100_000, None),
    ],
)
def test_a_bad_body_gets_400_and_names_the_field(server, body, param):
    reply = post(server.port, CHAT, body)
    assert reply.status == 400
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.error["type"] == "invalid_request_error"
    assert reply.error["param"] == param
    alive(server.port)


def test_an_image_is_refused_by_a_text_model(server):
    part = {"type": "image_url", "image_url": {"url": "data:,x"}}
    reply = chat(server.port, messages=[{"role": "user", "content": [part]}])
    assert reply.status == 400
    assert "image_url" in reply.error["message"]


def test_unknown_paths_methods_and_models(server):
    assert post(server.port, "/v1/nope", {}).status == 404
    assert "/v1/nope" in post(server.port, "/v1/nope", {}).error["message"]
    wrong_method = ask(server.port, "GET", CHAT)
    assert wrong_method.status == 405
    assert wrong_method.headers["Allow"] == "POST, OPTIONS"
    assert wrong_method.error["type"] == "invalid_request_error"
    for model in ("no-such", ""):
        reply = chat(server.port, model=model)
        assert reply.status == 404
        assert reply.error["code"] == "model_not_found"
    served = ask(server.port, "GET", "/v1/models").json["data"][0]
    assert ask(server.port, "GET", f"/v1/models/{served['id']}").json == served
    assert ask(server.port, "GET", "/v1/models/no-such").status == 404
    assert chat(server.port, max_tokens=1).json["model"] == served["id"]


def test_a_body_that_is_too_long_gets_413(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as sock:
        sock.sendall(f"POST {CHAT} HTTP/1.1\r\nContent-Length: {1 << 40}\r\n\r\n".encode())
        reply = read_until(sock, b"}}")
    assert reply.startswith(b"HTTP/1.1 413 ")
    assert b'"type":"invalid_request_error"' in reply
    alive(server.port)


def test_what_is_not_http_gets_400(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as sock:
        sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")  # a TLS client that took a wrong port
        assert read_until(sock, b"}}").startswith(b"HTTP/1.1 400 ")
    alive(server.port)


# --- Empty prompts and token ids that do not exist ---


@pytest.mark.parametrize("prompt", [[], [[]], [[5], []], None, 5, {}])
def test_a_prompt_without_anything_is_refused(server, prompt):
    reply = complete(server.port, prompt, max_tokens=4)
    assert reply.status == 400
    assert reply.error["param"] == "prompt"


def test_the_empty_string_is_one_bos_or_an_error(server):
    reply = complete(server.port, "", max_tokens=4)
    if reply.status == 200:
        assert reply.json["usage"]["prompt_tokens"] == 1
    else:
        assert reply.status == 400
        assert reply.error["param"] == "prompt"
    alive(server.port)


def test_no_token_is_made_when_none_is_wanted(server):
    reply = complete(server.port, "The sea", max_tokens=0)
    assert reply.status == 200
    assert reply.json["choices"][0]["text"] == ""
    assert reply.json["choices"][0]["finish_reason"] == "length"
    assert reply.json["usage"]["completion_tokens"] == 0
    alive(server.port)


def test_token_ids_outside_the_vocabulary_are_refused(server):
    for ids in ([-1], [1, 4294967297], [1.5], [1 << 64]):
        reply = complete(server.port, ids, max_tokens=1)
        assert reply.status == 400, ids
        assert reply.error["param"] == "prompt"
    # The message of the error says which ids there are.
    message = complete(server.port, [1 << 40]).error["message"]
    last = int(message.split("to ")[-1])
    assert complete(server.port, [last + 1], max_tokens=1).status == 400
    assert complete(server.port, [last], max_tokens=1).status == 200
    alive(server.port)


# --- Shape of answers ---


@pytest.mark.parametrize("stream", [{}, {"stream": False}, {"stream": None}])
def test_without_stream_an_answer_is_one_object(server, stream):
    reply = chat(server.port, max_tokens=8, **stream)
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/json"
    body = reply.json
    assert body["id"].startswith("chatcmpl-")
    assert body["object"] == "chat.completion"
    assert isinstance(body["created"], int)
    (choice,) = body["choices"]
    assert choice["index"] == 0
    assert choice["message"]["role"] == "assistant"
    assert isinstance(choice["message"]["content"], str)
    assert choice["logprobs"] is None
    assert choice["finish_reason"] in ("stop", "length")
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] <= usage["prompt_tokens"]


def test_ids_are_unique(server):
    assert len({chat(server.port, max_tokens=1).json["id"] for _ in range(5)}) == 5


def test_shape_of_a_stream(server):
    reply = chat(server.port, max_tokens=8, temperature=0, stream=True)
    assert reply.status == 200
    events = reply.events
    assert {e["object"] for e in events} == {"chat.completion.chunk"}
    assert len({(e["id"], e["created"], e["model"]) for e in events}) == 1
    assert all("usage" not in e for e in events)
    deltas = [e["choices"][0]["delta"] for e in events]
    assert deltas[0]["role"] == "assistant"
    assert all("role" not in d for d in deltas[1:])
    reasons = [e["choices"][0]["finish_reason"] for e in events]
    assert reasons[-1] in ("stop", "length")
    assert all(r is None for r in reasons[:-1])
    whole = chat(server.port, max_tokens=8, temperature=0).json
    content = whole["choices"][0]["message"]["content"]
    assert "".join(d.get("content", "") for d in deltas) == content


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (None, False),
        ({}, False),
        ({"include_usage": False}, False),
        ({"include_usage": True}, True),
    ],
)
def test_usage_is_streamed_only_if_asked_for(server, options, expected):
    asked = {"max_tokens": 4, "temperature": 0}
    events = chat(server.port, stream=True, stream_options=options, **asked).events
    usages = [e["usage"] for e in events if e.get("usage")]
    assert len(usages) == expected
    if expected:
        assert events[-1]["choices"] == []
        whole = chat(server.port, **asked).json["usage"]
        assert usages[0]["completion_tokens"] == whole["completion_tokens"]
        assert usages[0]["prompt_tokens"] == whole["prompt_tokens"]


def test_usage_of_a_stream_that_is_none_is_refused(server):
    reply = chat(server.port, stream_options={"include_usage": True})
    assert reply.status == 400
    assert reply.error["param"] == "stream_options"


def test_finish_reasons_and_token_counts(server):
    for max_tokens in (1, 5):
        body = complete(server.port, [5, 6, 7, 8], max_tokens=max_tokens, ignore_eos=True).json
        assert body["choices"][0]["finish_reason"] == "length"
        assert body["usage"]["prompt_tokens"] == 4
        assert body["usage"]["completion_tokens"] == max_tokens
    asked = {"text": "What is the capital of France?", "temperature": 0}
    body = chat(server.port, max_tokens=200, **asked).json
    assert body["choices"][0]["finish_reason"] == "stop"
    needed = body["usage"]["completion_tokens"]
    # The end token counts: a cap that it just meets did not end the answer.
    exact = chat(server.port, max_tokens=needed, **asked).json
    assert exact["choices"][0]["finish_reason"] == "stop"
    assert exact["choices"][0]["message"] == body["choices"][0]["message"]
    cut = chat(server.port, max_tokens=needed - 1, **asked).json
    assert cut["choices"][0]["finish_reason"] == "length"
    over = chat(server.port, max_tokens=needed + 3, ignore_eos=True, **asked).json
    assert over["choices"][0]["finish_reason"] == "length"
    assert over["usage"]["completion_tokens"] == needed + 3


def test_names_and_defaults_of_the_token_limit(server):
    def tokens(**fields) -> int:
        return chat(server.port, ignore_eos=True, **fields).json["usage"]["completion_tokens"]

    assert tokens(max_completion_tokens=3) == 3
    assert tokens(max_completion_tokens=3, max_tokens=9) == 3
    assert tokens(max_tokens=9, max_completion_tokens=None) == 9
    rest = {"stop": ["e"], "temperature": 0}
    assert tokens(max_tokens=None, max_completion_tokens=None, **rest) == tokens(**rest)
    body = complete(server.port, "The sea", ignore_eos=True).json
    assert body["usage"]["completion_tokens"] == 16
    free = chat(server.port, "What is the capital of France?", temperature=0, max_tokens=None)
    assert free.json["choices"][0]["finish_reason"] == "stop"


def streamed_text(reply: Reply) -> str:
    return "".join(e["choices"][0]["text"] for e in reply.events)


def test_stop_strings_across_tokens_leave_no_trace(server):
    asked = {"prompt": "One, two, three, four,", "max_tokens": 16, "temperature": 0}
    text = complete(server.port, **asked).json["choices"][0]["text"]
    assert len(text) > 20
    middle = len(text) // 2
    stop = text[middle - 3 : middle + 3]  # six characters: hardly a single token
    expected = text[: text.index(stop)]
    for form in (stop, [stop], [stop, "never to be seen"]):
        body = complete(server.port, stop=form, **asked).json
        assert body["choices"][0]["text"] == expected
        assert body["choices"][0]["finish_reason"] == "stop"
        needed = body["usage"]["completion_tokens"]
        assert needed < 16
        exact = complete(server.port, stop=form, **{**asked, "max_tokens": needed}).json
        assert exact["choices"] == body["choices"], "a stop text in the last token that may come"
        stream = complete(server.port, stop=form, stream=True, **asked)
        assert streamed_text(stream) == expected
        assert stream.events[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_stop_string_that_only_begins_loses_no_text(server):
    asked = {"prompt": "One, two, three, four,", "max_tokens": 16, "temperature": 0}
    text = complete(server.port, **asked).json["choices"][0]["text"]
    stops = [text[-4:] + "#", text[5:9] + "#"]
    assert complete(server.port, stop=stops, **asked).json["choices"][0]["text"] == text
    assert streamed_text(complete(server.port, stop=stops, stream=True, **asked)) == text


def test_a_stop_id_ends_an_answer(server):
    asked = {"prompt": "One, two, three, four,", "max_tokens": 16, "temperature": 0}
    last = int(complete(server.port, [1 << 40]).error["message"].split("to ")[-1])
    everything = list(range(last + 1))
    body = complete(server.port, stop_token_ids=everything, **asked).json
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] == 1


def test_several_choices_have_their_own_seeds(server):
    asked = {"prompt": "The sea", "max_tokens": 24, "temperature": 1.2, "n": 4, "seed": 11}
    first = complete(server.port, **asked).json
    again = complete(server.port, **asked).json
    texts = [c["text"] for c in first["choices"]]
    assert [c["index"] for c in first["choices"]] == [0, 1, 2, 3]
    assert texts == [c["text"] for c in again["choices"]]
    assert len(set(texts)) >= 2
    assert first["usage"]["completion_tokens"] <= 4 * 24
    one = complete(server.port, "The sea", max_tokens=1)
    assert first["usage"]["prompt_tokens"] == one.json["usage"]["prompt_tokens"]
    events = complete(server.port, stream=True, **asked).events
    streamed = ["", "", "", ""]
    reasons = []
    for event in events:
        (choice,) = event["choices"]
        streamed[choice["index"]] += choice["text"]
        if choice["finish_reason"]:
            reasons.append(choice["index"])
    assert streamed == texts
    assert sorted(reasons) == [0, 1, 2, 3]
    greedy = complete(server.port, **{**asked, "temperature": 0}).json
    assert len({c["text"] for c in greedy["choices"]}) == 1


def test_several_prompts_are_several_choices(server):
    prompts = ["The sea", "The sky", "One, two, three,"]
    asked = {"max_tokens": 6, "temperature": 0}
    together = complete(server.port, prompts, **asked).json
    alone = [complete(server.port, p, **asked).json for p in prompts]
    assert [c["text"] for c in together["choices"]] == [a["choices"][0]["text"] for a in alone]
    assert together["usage"]["prompt_tokens"] == sum(a["usage"]["prompt_tokens"] for a in alone)
    ids = complete(server.port, [[5, 6], [7, 8, 9]], **asked).json
    assert ids["usage"]["prompt_tokens"] == 5
    assert len(ids["choices"]) == 2


def test_upstreams_generate_streams_json_frames(server):
    asked = {"prompt": "Write a list:\n1.", "max_tokens": 12, "ignore_eos": True}
    events = post(server.port, "/generate", asked).events
    whole = complete(server.port, temperature=0, **asked).json
    assert "".join(e["text"] for e in events) == whole["choices"][0]["text"]
    assert events[-1]["finish_reason"] == "length"
    once = post(server.port, "/generate", {**asked, "stream": False}).json
    assert once["text"] == whole["choices"][0]["text"]
    assert once["usage"]["completion_tokens"] == 12


# --- Connections ---


def test_small_endpoints(server):
    for method in ("GET", "POST", "OPTIONS"):
        assert ask(server.port, method, "/v1").json == {"status": "ok"}
    assert ask(server.port, "GET", "/version").json["version"]
    head = ask(server.port, "HEAD", "/health")
    assert head.status == 200
    assert head.body == b""
    assert ask(server.port, "OPTIONS", CHAT).status == 204


def test_a_thousand_requests_use_one_connection(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.connect()
    sock = connection.sock
    for i in range(1000):
        if i % 50 == 0:
            body = {"messages": MESSAGES, "max_tokens": 1, "stream": i % 100 == 0}
            connection.request("POST", CHAT, json.dumps(body))
        else:
            connection.request("GET", "/v1/models")
        reply = connection.getresponse()
        assert reply.status == 200
        assert reply.read()
        assert connection.sock is sock, f"the server closed after {i} requests"
    connection.close()


def test_pipelined_requests_are_answered_in_order(server):
    body = json.dumps({"prompt": "a", "max_tokens": 2, "stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    get = b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        sock.sendall(head.encode() + body + head.encode() + body + get)
        replies = read_until(sock, b"\0")  # to the end
    assert replies.count(b"HTTP/1.1 200 OK") == 3
    assert replies.count(b"data: [DONE]\n\n") == 2
    assert replies.rindex(b"[DONE]") < replies.index(b'{"version"')
