"""/v1/responses as the official `openai` client sees it."""

import openai
import pytest

QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def model(client) -> str:
    return next(iter(client.models.list())).id


def test_a_response_answers_the_question(client, model):
    response = client.responses.create(
        model=model, input=QUESTION, max_output_tokens=24, temperature=0
    )
    assert response.object == "response"
    assert "Paris" in response.output_text
    assert response.status in ("completed", "incomplete")
    assert response.usage.total_tokens == (
        response.usage.input_tokens + response.usage.output_tokens
    )


def test_a_streamed_response_is_the_whole_one(client, model):
    asked = {"model": model, "input": QUESTION, "max_output_tokens": 8, "temperature": 0}
    whole = client.responses.create(**asked, instructions="Be brief.")
    with client.responses.stream(**asked, instructions="Be brief.") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == whole.output_text
    assert final.usage.output_tokens == whole.usage.output_tokens
    deltas = [e.delta for e in events if e.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    assert events[-1].type in ("response.completed", "response.incomplete")


def test_a_conversation_is_sent_as_items(client, model):
    response = client.responses.create(
        model=model,
        max_output_tokens=4,
        input=[
            {"role": "user", "content": [{"type": "input_text", "text": "Add 2 and 3"}]},
            {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a": 2}'},
            {"type": "function_call_output", "call_id": "c", "output": "5"},
        ],
    )
    assert response.usage.output_tokens >= 1


def test_nothing_is_kept(client, model):
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=model, input="hi", previous_response_id="resp_1")
    assert refused.value.param == "previous_response_id"
