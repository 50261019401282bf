"""The server as the official `openai` client sees it."""

import openai
import pytest
from http_tools import health, in_parallel, wait_idle, wait_until

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def model(client) -> str:
    models = list(client.models.list())
    assert len(models) == 1
    return models[0].id


def text_of(stream) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def test_the_model_is_listed_and_can_be_retrieved(client, model):
    card = client.models.retrieve(model)
    assert card.id == model
    assert card.object == "model"
    assert isinstance(card.created, int)


def test_a_chat_answers_the_question(client, model):
    reply = client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=16, temperature=0
    )
    assert reply.object == "chat.completion"
    assert reply.model == model
    assert "Paris" in reply.choices[0].message.content
    assert reply.choices[0].message.role == "assistant"
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_a_streamed_chat_has_the_text_of_the_whole_one(client, model):
    asked = {"model": model, "messages": QUESTION, "max_tokens": 24, "temperature": 0}
    whole = client.chat.completions.create(**asked)
    chunks = list(
        client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    assert text_of(chunks) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({(c.id, c.created, c.model, c.object) for c in chunks}) == 1
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert [r for r in reasons if r] == [whole.choices[0].finish_reason]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    assert all(c.usage is None for c in chunks[:-1])


def test_a_completion_streamed_and_whole(client, model):
    asked = {"model": model, "prompt": "The sea is", "max_tokens": 12, "temperature": 0}
    whole = client.completions.create(**asked)
    assert whole.object == "text_completion"
    assert whole.usage.completion_tokens == 12
    assert whole.choices[0].finish_reason == "length"
    chunks = list(client.completions.create(**asked, stream=True))
    assert "".join(c.choices[0].text for c in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == "length"


def test_a_seed_makes_an_answer_repeatable(client, model):
    def answer(seed: int) -> str:
        reply = client.chat.completions.create(
            model=model, messages=QUESTION, max_tokens=24, temperature=1.5, seed=seed
        )
        return reply.choices[0].message.content

    assert answer(5) == answer(5)
    assert len({answer(seed) for seed in (5, 6, 7)}) > 1


@pytest.mark.batch_independent
def test_a_seed_gives_the_same_answer_alone_and_among_fifty_others(client, model):
    def answer(i: int) -> tuple:
        reply = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": f"Tell me about the number {i % 17}."}],
            max_tokens=16,
            temperature=1.3,
            top_p=0.95,
            seed=i,
            logprobs=True,
            extra_body={"min_p": 0.01, "top_k": 200},
        )
        content = reply.choices[0].logprobs.content
        return reply.choices[0].message.content, [token.logprob for token in content]

    together = in_parallel([lambda i=i: answer(i) for i in range(51)])
    for i in (0, 25, 50):
        assert answer(i) == together[i], "to the last bit of the log-probabilities"
    assert len({text for text, _ in together}) == 51


def test_every_sampling_field_is_taken_and_unknown_ones_are_ignored(client, model):
    (choice, other) = client.chat.completions.create(
        model=model,
        messages=QUESTION,
        max_completion_tokens=24,
        n=2,
        seed=3,
        temperature=0.9,
        top_p=0.9,
        presence_penalty=0.5,
        frequency_penalty=0.5,
        logit_bias={"260": 1.5},
        stop=["never to be seen"],
        user="someone",
        store=None,
        metadata={"purpose": "test"},
        extra_body={
            "top_k": 50,
            "min_p": 0.02,
            "repetition_penalty": 1.1,
            "min_tokens": 4,
            "ignore_eos": True,
            "stop_token_ids": [5],
            "include_stop_str_in_output": True,
            "skip_special_tokens": True,
            "surprise": {"deep": [1, None]},
        },
    ).choices
    assert choice.message.content != other.message.content
    assert {choice.finish_reason, other.finish_reason} <= {"length", "stop"}


def test_fifty_streams_at_once_each_say_what_they_say_alone(client, model):
    def stream(i: int) -> str:
        return text_of(
            client.chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": f"Tell me about the number {i}."}],
                max_tokens=12,
                temperature=0,
                stream=True,
            )
        )

    together = in_parallel([lambda i=i: stream(i) for i in range(50)])
    assert all(together)
    for i in (0, 7, 23, 49):
        assert stream(i) == together[i]


def test_a_client_that_leaves_its_stream_gives_the_pages_back(client, model, server):
    wait_idle(server.port)
    stream = client.chat.completions.create(
        model=model,
        messages=QUESTION,
        max_tokens=1500,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    next(iter(stream))
    assert health(server.port)["running"] == 1
    stream.close()
    wait_until(lambda: health(server.port)["running"] == 0, 2, "noticing that the client left")
    wait_idle(server.port)


def test_errors_have_the_types_that_clients_know(client, model):
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="no-such", messages=QUESTION)
    assert missing.value.code == "model_not_found"
    assert model in missing.value.message
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model=model, messages=QUESTION, temperature=3)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as unsupported:
        client.chat.completions.create(
            model=model, messages=QUESTION, extra_body={"use_beam_search": True}
        )
    assert unsupported.value.param == "use_beam_search"
    assert unsupported.value.code == "unsupported_parameter"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "word " * 20_000}], stream=True
        )
    assert long.value.code == "context_length_exceeded"
    assert long.value.param == "messages"


def test_history_with_parts_and_tool_calls_is_understood(client, model):
    reply = client.chat.completions.create(
        model=model,
        max_tokens=8,
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Add "},
                    {"type": "text", "text": "2 and 3"},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "5"},
        ],
    )
    assert reply.usage.completion_tokens >= 1


def test_other_forms_of_content_and_roles(client, model):
    def prompt_tokens(role: str, content) -> int:
        messages = [{"role": role, "content": content}, *QUESTION]
        reply = client.chat.completions.create(model=model, messages=messages, max_tokens=1)
        return reply.usage.prompt_tokens

    assert prompt_tokens("developer", "Be brief.") == prompt_tokens("system", "Be brief.")
    assert prompt_tokens("user", []) == prompt_tokens("user", "")
    parts = [{"type": "text", "text": "Add"}, {"type": "text", "text": "2"}]
    assert prompt_tokens("user", parts) == prompt_tokens("user", "Add\n2")
