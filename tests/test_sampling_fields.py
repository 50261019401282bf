"""Fields that change which tokens are drawn, and log-probabilities, as a client sees them."""

import pytest
from http_tools import chat, complete, post

COUNT = "One, two, three, four,"


def text_of(reply) -> str:
    assert reply.status == 200, reply.body
    return reply.json["choices"][0]["text"]


def ids_of(server, text: str) -> list[int]:
    body = {"prompt": text, "add_special_tokens": False}
    return post(server.port, "/tokenize", body).json["tokens"]


def test_a_bias_forces_or_forbids_a_token(server):
    (token,) = ids_of(server, " sea")
    forced = complete(server.port, COUNT, max_tokens=4, temperature=0, logit_bias={token: 100})
    assert text_of(forced) == " sea sea sea sea"
    free = complete(server.port, COUNT, max_tokens=1, temperature=0, logprobs=0)
    first = free.json["choices"][0]["text"]
    (token,) = ids_of(server, first)
    other = complete(server.port, COUNT, max_tokens=1, temperature=0, logit_bias={token: -100})
    assert text_of(other) != first


def test_penalties_make_an_answer_repeat_itself_less(server):
    def distinct(**penalty) -> int:
        params = {"max_new_tokens": 96, "temperature": 0, "ignore_eos": True, **penalty}
        body = {"text": COUNT, "sampling_params": params}
        ids = post(server.port, "/generate", body).json["output_ids"]
        assert len(ids) == 96
        return len(set(ids))

    plain = distinct()
    assert plain < 80, "a greedy answer repeats itself"
    for penalty in ("frequency_penalty", "presence_penalty", "repetition_penalty"):
        assert distinct(**{penalty: 2}) > plain, penalty
    assert distinct(frequency_penalty=-2) <= plain


def test_an_answer_is_at_least_as_long_as_wanted(server):
    asked = {"text": "What is the capital of France?", "temperature": 0}
    short = chat(server.port, **asked).json["usage"]["completion_tokens"]
    longer = chat(server.port, min_tokens=short + 5, max_tokens=short + 20, **asked).json
    assert longer["usage"]["completion_tokens"] >= short + 5


def test_a_stop_text_may_be_part_of_the_answer(server):
    asked = {"prompt": COUNT, "max_tokens": 12, "temperature": 0}
    text = text_of(complete(server.port, **asked))
    stop = text[4:8]
    cut = complete(server.port, stop=stop, include_stop_str_in_output=True, **asked)
    assert text_of(cut) == text[: text.index(stop) + len(stop)]


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_of_a_chat(server, stream):
    asked = {"text": "Say one word.", "max_tokens": 8, "temperature": 0}
    asked.update(logprobs=True, top_logprobs=3, stream=stream)
    reply = chat(server.port, **asked)
    choices = [e["choices"][0] for e in reply.events] if stream else reply.json["choices"]
    tokens = [t for c in choices if c["logprobs"] for t in c["logprobs"]["content"]]
    texts = [c["delta"].get("content") or "" for c in choices] if stream else None
    text = "".join(texts) if stream else choices[0]["message"]["content"]
    joined = b"".join(bytes(t["bytes"]) for t in tokens)
    assert joined.decode() == text
    for token in tokens:
        assert len(token["top_logprobs"]) == 3
        values = [t["logprob"] for t in token["top_logprobs"]]
        assert values == sorted(values, reverse=True)
        assert token["logprob"] == values[0], "greedy takes the most likely"
        assert -9999 <= token["logprob"] <= 0
    assert any(t["logprob"] < -0.01 for t in tokens), "of the model's own distribution"


def test_log_probabilities_without_alternatives(server):
    content = chat(server.port, max_tokens=3, logprobs=True).json["choices"][0]["logprobs"]
    assert all(token["top_logprobs"] == [] for token in content["content"])
    assert chat(server.port, max_tokens=3).json["choices"][0]["logprobs"] is None


def test_log_probabilities_of_a_completion(server):
    asked = {"max_tokens": 6, "temperature": 0, "logprobs": 2, "ignore_eos": True}
    choice = complete(server.port, COUNT, **asked).json["choices"][0]
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == choice["text"]
    assert len(logprobs["token_logprobs"]) == 6
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        assert choice["text"][offset:].startswith(token)
    for top, token in zip(logprobs["top_logprobs"], logprobs["tokens"], strict=True):
        assert token in top


@pytest.mark.batch_independent
def test_an_echo_repeats_the_prompt_with_its_log_probabilities(server):
    asked = {"max_tokens": 2, "temperature": 0, "echo": True}
    assert text_of(complete(server.port, COUNT, **asked)).startswith(COUNT)
    choice = complete(server.port, COUNT, logprobs=1, **asked).json["choices"][0]
    logprobs = choice["logprobs"]
    assert logprobs["token_logprobs"][0] is None
    assert all(value <= 0 for value in logprobs["token_logprobs"][1:])
    assert "".join(logprobs["tokens"]).endswith(choice["text"][len(COUNT) :])
    # The sum is the same when the answer is part of the prompt.
    again = complete(server.port, choice["text"], max_tokens=1, echo=True, logprobs=1)
    values = again.json["choices"][0]["logprobs"]["token_logprobs"]
    for a, b in zip(logprobs["token_logprobs"][1:], values[1:], strict=False):
        assert a == pytest.approx(b, abs=1e-3)


def test_the_best_of_several_is_the_likeliest(server):
    asked = {"prompt": "The sea", "max_tokens": 8, "temperature": 1.2, "seed": 11, "logprobs": 0}
    all_four = complete(server.port, n=4, **asked).json["choices"]

    def likelihood(choice) -> float:
        values = choice["logprobs"]["token_logprobs"]
        return sum(values) / len(values)

    best = max(all_four, key=likelihood)
    body = complete(server.port, n=1, best_of=4, **asked).json
    assert [c["text"] for c in body["choices"]] == [best["text"]]
    assert body["usage"]["completion_tokens"] >= 4
