"""Answers that have to satisfy a JSON schema, a pattern or a grammar do."""

import json
import os
import re
import subprocess

import jsonschema
import openai
import pydantic
import pytest
from conftest import Server
from http_tools import chat, in_parallel, post
from random_schemas import random_schema
from tiny_models import tiny_model

# 200 take minutes on two cores: MINISGL_TEST_SCHEMAS=200.
NUM_SCHEMAS = int(os.environ.get("MINISGL_TEST_SCHEMAS", "16"))
MAX_TOKENS = 512


@pytest.fixture(scope="module")
def generate(minisgl_binary, sample_model, tmp_path_factory):
    """generate(requests, *flags) -> answers, all computed together."""

    def run(requests, *flags):
        path = tmp_path_factory.mktemp("generate") / "requests.jsonl"
        path.write_text("".join(json.dumps(request) + "\n" for request in requests))
        done = subprocess.run(
            [minisgl_binary, "generate", "--model", sample_model, "--input", path, "--json", *flags],
            capture_output=True, timeout=1500, check=False,
        )  # fmt: skip
        answers = [json.loads(line) for line in done.stdout.decode().splitlines()]
        assert len(answers) == len(requests), done.stderr.decode()
        return answers

    return run


PROMPT = "Make something up and answer in JSON."


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=1500
    ) as client:
        yield client


def request(format_, text=PROMPT, **sampling):
    return {
        "messages": [{"role": "user", "content": text}],
        "sampling": {"max_tokens": MAX_TOKENS, "response_format": format_, **sampling},
    }


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


@pytest.mark.timeout(1600)
def test_answers_to_random_schemas_are_valid_and_end(client):
    schemas = [random_schema(seed) for seed in range(NUM_SCHEMAS)]
    model = next(iter(client.models.list())).id

    def answer(i: int):
        return client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": PROMPT}],
            max_tokens=MAX_TOKENS,
            temperature=0.8 if i % 2 else 0,
            seed=i,
            response_format=schema_format(schemas[i]),
        ).choices[0]

    answers = in_parallel([lambda i=i: answer(i) for i in range(NUM_SCHEMAS)])
    ends = 0
    for schema, choice in zip(schemas, answers, strict=True):
        assert choice.finish_reason in ("stop", "length"), choice
        if choice.finish_reason != "stop":
            continue
        ends += 1
        jsonschema.Draft202012Validator(schema).validate(json.loads(choice.message.content))
    print(f"{ends} of {len(answers)} answers ended; all of them are valid")
    assert ends >= 0.95 * len(answers)


def test_a_format_that_the_vocabulary_cannot_write_is_the_requests_fault(server):
    """The sample model's vocabulary has no token with the byte F1."""
    reply = chat(server.port, "Hello", guided_regex="a\U00043d6e", max_tokens=8)
    assert reply.status == 400
    assert "no token can follow" in reply.error["message"]
    assert chat(server.port, "Hello", max_tokens=2).status == 200


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=120)


def test_formats_as_the_client_asks_for_them(client):
    asked = {
        "model": next(iter(client.models.list())).id,
        "messages": [{"role": "user", "content": "Anna is 31. Answer in JSON."}],
        "max_tokens": 200,
    }
    parsed = client.chat.completions.parse(**asked, response_format=Person).choices[0].message
    assert isinstance(parsed.parsed, Person)
    chunks = client.chat.completions.create(
        **asked, stream=True, temperature=0,
        response_format={"type": "json_schema",
                         "json_schema": {"name": "p", "schema": Person.model_json_schema()}},
    )  # fmt: skip
    Person.model_validate_json("".join(c.choices[0].delta.content or "" for c in chunks))
    free = client.chat.completions.create(**asked, response_format={"type": "json_object"})
    content = free.choices[0].message.content
    if free.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(content), dict)
    assert content.startswith("{")
    text = client.responses.parse(
        model=asked["model"], input="Anna is 31.", text_format=Person, max_output_tokens=200
    )
    assert isinstance(text.output_parsed, Person)
    with pytest.raises(openai.BadRequestError, match='"uniqueItems" at #/properties/a') as refused:
        client.chat.completions.create(
            **asked,
            response_format=schema_format(
                {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
            ),
        )
    assert refused.value.param == "response_format"


def test_constrained_and_free_answers_share_batches(generate):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
              "required": ["n"], "additionalProperties": False}  # fmt: skip
    free = {"messages": [{"role": "user", "content": "Count to five."}],
            "sampling": {"max_tokens": 24}}  # fmt: skip
    formats = [schema_format(schema), {"type": "regex", "pattern": "[a-z]{3,5}!"},
               {"type": "choice", "choices": ["left", "right"]},
               {"type": "grammar", "grammar": 'root ::= "(" root ")" | "x"'},
               {"type": "json_object"}]  # fmt: skip
    alone = generate([free])[0]["text"]
    requests = [
        r for f in formats for r in (free, request(f, seed=1, temperature=1, max_tokens=60))
    ]
    plain = None
    for flags in ((), ("--no-overlap",), ("--cuda-graph-max-bs", "16")):
        answers = generate(requests, *flags)
        texts = [a["text"] for a in answers]
        assert texts[0::2] == [alone] * len(formats)
        assert json.loads(texts[1])["n"] in range(10)
        assert re.fullmatch("[a-z]{3,5}!", texts[3])
        assert texts[5] in ("left", "right")
        assert re.fullmatch(r"\(*x\)*", texts[7]) or answers[7]["finish_reason"] == "length"
        assert texts[9].startswith("{")
        assert [a["finish_reason"] for a in answers[1:7:2]] == ["stop"] * 3
        plain = plain or texts
        assert texts == plain


def test_a_format_that_is_not_enforced_fails_alone(generate):
    bad = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    good = {"type": "boolean"}
    answers = generate([request(schema_format(bad)), request(schema_format(good))])
    assert answers[0]["finish_reason"] == "error"
    assert '"uniqueItems" at #/properties/a is not enforced' in answers[0]["error"]
    assert answers[1]["text"] in ("true", "false")


def test_a_flag_gives_the_format_of_one_answer(minisgl_binary, sample_model):
    done = subprocess.run(
        [minisgl_binary, "generate", "--model", sample_model, "--prompt", "Yes or no?", "--json",
         "--response-format", '{"type":"choice","choices":["yes","no"]}'],
        capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert answer["text"] in ("yes", "no")
    assert answer["finish_reason"] == "stop"


TEMPLATE = """{% for message in messages %}{{ message['content'] }}{% endfor %}
{%- if add_generation_prompt and mode == 'begun' %}<think>{% endif %}
{%- if add_generation_prompt and mode == 'over' %}<think></think>{% endif %}"""


def test_reasoning_comes_before_a_constrained_answer(minisgl_binary, tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text(TEMPLATE)
    server = Server(minisgl_binary, tiny_model("qwen3"), "--chat-template", str(template))

    def token(text: str) -> int:
        (token,) = post(server.port, "/tokenize", {"prompt": text}).json["tokens"]
        return token

    try:
        # A model without training, led by biases: <think> if it may come first, some "x", </think>.
        asked = {
            "logit_bias": {token("<think>"): 30, token("x"): 54, token("</think>"): 50},
            "frequency_penalty": 2,
            "temperature": 0,
            "max_tokens": 40,
            "response_format": {"type": "choice", "choices": ["yes", "no"]},
        }
        for mode, reasons in [("free", True), ("begun", True), ("over", False)]:
            asked["chat_template_kwargs"] = {"mode": mode}
            (choice,) = chat(server.port, **asked).json["choices"]
            message = choice["message"]
            assert choice["finish_reason"] == "stop"
            assert message["content"] in ("yes", "no")
            assert (set(message.get("reasoning_content", "")) == {"x"}) == reasons
            deltas = [
                e["choices"][0]["delta"] for e in chat(server.port, stream=True, **asked).events
            ]
            for part in ("content", "reasoning_content"):
                assert "".join(d.get(part) or "" for d in deltas) == message.get(part, "")
        whole = chat(server.port, separate_reasoning=False, **{**asked, "chat_template_kwargs": {}})
        assert whole.json["choices"][0]["message"]["content"] in ("yes", "no")
    finally:
        server.stop()
