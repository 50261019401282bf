"""Tool calls as the official `openai` client sees them. What a model calls by itself is tested with
texts (src/chat/); here calls are forced, so that a small model makes them."""

import json

import openai
import pytest

MESSAGES = [{"role": "user", "content": "How is the weather in Paris?"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "maxLength": 12},
                    "unit": {"enum": ["celsius", "fahrenheit"]},
                },
                "required": ["city", "unit"],
                "additionalProperties": False,
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "now",
            "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        },
    },
]


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def asked(client) -> dict:
    return {
        "model": next(iter(client.models.list())).id,
        "messages": MESSAGES,
        "tools": TOOLS,
        "max_tokens": 200,
        "temperature": 0,
    }


def check_arguments(text: str) -> None:
    arguments = json.loads(text)
    assert set(arguments) == {"city", "unit"}
    assert isinstance(arguments["city"], str)
    assert arguments["unit"] in ("celsius", "fahrenheit")


NAMED = {"type": "function", "function": {"name": "get_weather"}}


def test_a_function_by_name_is_called(client, asked):
    choice = client.chat.completions.create(**asked, tool_choice=NAMED).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert call.id
    assert call.function.name == "get_weather"
    check_arguments(call.function.arguments)


def test_a_required_call_is_one_of_the_tools(client, asked):
    choice = client.chat.completions.create(
        **asked, tool_choice="required", parallel_tool_calls=False
    ).choices[0]
    (call,) = choice.message.tool_calls
    assert call.function.name in ("get_weather", "now")
    json.loads(call.function.arguments)


def test_a_streamed_call_is_the_whole_one(client, asked):
    whole = client.chat.completions.create(**asked, tool_choice=NAMED).choices[0]
    chunks = list(client.chat.completions.create(**asked, tool_choice=NAMED, stream=True))
    deltas = [c.choices[0].delta.tool_calls[0] for c in chunks if c.choices[0].delta.tool_calls]
    assert deltas[0].function.name == "get_weather"
    assert deltas[0].id
    assert all(d.id is None and d.function.name is None for d in deltas[1:])
    arguments = "".join(d.function.arguments for d in deltas)
    assert arguments == whole.message.tool_calls[0].function.arguments
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_a_call_and_its_result_are_a_history(client, asked):
    message = client.chat.completions.create(**asked, tool_choice=NAMED).choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "Sunny, 21"}
    messages = [*MESSAGES, message.model_dump(exclude_none=True), result]
    again = client.chat.completions.create(**{**asked, "messages": messages, "max_tokens": 8})
    assert again.usage.completion_tokens >= 1


def test_a_call_in_the_models_own_syntax_is_taken_out_of_the_text(start_server):
    """No small model writes one by itself, so the answer is constrained to a text with a call."""
    server = start_server("--tool-call-parser", "hermes")
    arguments = '{"city": "Paris", "unit": "celsius"}'
    call = f'<tool_call>{{"name": "get_weather", "arguments": {arguments}}}</tool_call>'
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        asked = {
            "model": next(iter(client.models.list())).id,
            "messages": MESSAGES,
            "tools": TOOLS,
            "extra_body": {"guided_choice": ["Let me see. " + call]},
        }
        whole = client.chat.completions.create(**asked).choices[0]
        assert whole.finish_reason == "tool_calls"
        assert whole.message.content == "Let me see."
        (found,) = whole.message.tool_calls
        assert (found.function.name, found.function.arguments) == ("get_weather", arguments)
        chunks = list(client.chat.completions.create(**asked, stream=True))
        deltas = [c.choices[0].delta for c in chunks]
        assert "".join(d.content or "" for d in deltas).rstrip() == "Let me see."
        calls = [d.tool_calls[0].function for d in deltas if d.tool_calls]
        assert calls[0].name == "get_weather"
        assert "".join(c.arguments or "" for c in calls) == arguments
        hidden = client.chat.completions.create(**asked, tool_choice="none").choices[0]
        assert hidden.message.content.endswith(call)
        assert hidden.finish_reason == "stop"
    server.stop()


def test_responses_call_functions_too(client, asked):
    tool = {"type": "function", **TOOLS[0]["function"]}
    response = client.responses.create(
        model=asked["model"],
        input="How is the weather in Paris?",
        tools=[tool],
        tool_choice={"type": "function", "name": "get_weather"},
        max_output_tokens=200,
    )
    (call,) = response.output
    assert call.type == "function_call"
    assert call.name == "get_weather"
    check_arguments(call.arguments)
