"""Answers that have to satisfy a JSON schema, a pattern or a grammar do."""

import json
import os
import re
import subprocess

import jsonschema
import pytest
from random_schemas import random_schema

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


def request(format_, text="Make something up and answer in JSON.", **sampling):
    return {
        "messages": [{"role": "user", "content": text}],
        "sampling": {"max_tokens": MAX_TOKENS, "response_format": format_, **sampling},
    }


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


@pytest.mark.timeout(1600)
def test_answers_to_random_schemas_are_valid_and_end(generate):
    schemas = [random_schema(seed) for seed in range(NUM_SCHEMAS)]
    requests = [
        request(schema_format(s), temperature=0.8 if i % 2 else 0, seed=i)
        for i, s in enumerate(schemas)
    ]
    answers = generate(requests)
    ends = 0
    for schema, answer in zip(schemas, answers, strict=True):
        assert answer["finish_reason"] in ("stop", "length"), answer
        if answer["finish_reason"] != "stop":
            continue
        ends += 1
        jsonschema.Draft202012Validator(schema).validate(json.loads(answer["text"]))
    print(f"{ends} of {len(answers)} answers ended; all of them are valid")
    assert ends >= 0.95 * len(answers)


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
