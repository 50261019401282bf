"""The server as the official `anthropic` client sees it."""

import anthropic
import pytest
from http_tools import ask, post

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
TOOL = {
    "name": "get_weather",
    "description": "The weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def client(server):
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def model(server) -> str:
    return ask(server.port, "GET", "/v1/models").json["data"][0]["id"]


def test_a_message_answers_the_question(client, model):
    message = client.messages.create(
        model=model, messages=QUESTION, max_tokens=24, extra_body={"temperature": 0}
    )
    assert message.type == "message"
    assert message.role == "assistant"
    assert message.model == model
    assert message.content[0].type == "text"
    assert "Paris" in message.content[0].text
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert message.usage.output_tokens >= 1


def test_a_streamed_message_is_the_whole_one(client, model):
    asked = {
        "model": model,
        "messages": QUESTION,
        "system": "Be brief.",
        "max_tokens": 16,
        "extra_body": {"temperature": 0},
    }
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text
    assert final.content[0].text == text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    total = whole.usage.input_tokens + whole.usage.cache_read_input_tokens
    assert final.usage.input_tokens + final.usage.cache_read_input_tokens == total


def test_tokens_are_counted_as_they_are_used(client, model):
    counted = client.messages.count_tokens(model=model, messages=QUESTION, system="Be brief.")
    used = client.messages.create(
        model=model, messages=QUESTION, system="Be brief.", max_tokens=1
    ).usage
    assert counted.input_tokens == used.input_tokens + used.cache_read_input_tokens


def test_a_stop_sequence_is_named(client, model):
    asked = {"model": model, "messages": QUESTION, "max_tokens": 24}
    text = client.messages.create(**asked, extra_body={"temperature": 0}).content[0].text
    middle = text[len(text) // 2 :][:4]
    message = client.messages.create(
        **asked, stop_sequences=[middle], extra_body={"temperature": 0}
    )
    assert message.stop_reason == "stop_sequence"
    assert message.stop_sequence == middle
    assert message.content[0].text == text[: text.index(middle)]


def test_the_assistants_last_words_are_continued(client, model):
    begun = [*QUESTION, {"role": "assistant", "content": "The capital of France is"}]
    message = client.messages.create(
        model=model, messages=begun, max_tokens=4, extra_body={"temperature": 0}
    )
    assert "Paris" in message.content[0].text


def test_a_history_with_tools_is_understood(client, model):
    call = {"type": "tool_use", "id": "i", "name": "get_weather", "input": {"city": "Paris"}}
    message = client.messages.create(
        model=model,
        max_tokens=4,
        tools=[TOOL],
        messages=[
            {"role": "user", "content": "How is the weather in Paris?"},
            {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, call]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "i", "content": "Sunny"}],
            },
        ],
    )
    assert message.usage.output_tokens >= 1


def test_a_message_without_blocks_is_an_empty_one(client, model):
    def count(content) -> int:
        messages = [{"role": "user", "content": content}]
        return client.messages.count_tokens(model=model, messages=messages).input_tokens

    assert count([]) == count("")


def test_errors_have_the_types_that_clients_know(client, model, server):
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.messages.create(model="no-such", messages=QUESTION, max_tokens=1)
    assert missing.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError) as bad:
        client.messages.create(model=model, messages=[], max_tokens=1)
    assert bad.value.body["error"]["type"] == "invalid_request_error"
    image = {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}
    with pytest.raises(anthropic.BadRequestError, match="image"):
        client.messages.create(
            model=model, messages=[{"role": "user", "content": [image]}], max_tokens=1
        )
    assert post(server.port, "/v1/messages", b"{").json["type"] == "error"
