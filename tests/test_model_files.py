"""Model folders from the command line: sampling defaults, types of weights, models without weights."""

import json
import shutil
import subprocess
import urllib.request

import pytest
from conftest import Server
from http_tools import complete
from tiny_models import TINY, tiny_model

IDS = [5, 6, 7, 8]


@pytest.fixture
def generate(minisgl_binary, tmp_path):
    """generate(folder, *flags, sampling=None) -> the ids of one answer to IDS."""
    requests = tmp_path / "requests.jsonl"

    def run(folder, *flags, sampling=None):
        line = {"token_ids": IDS, **({"sampling": sampling} if sampling else {})}
        requests.write_text(json.dumps(line))
        done = subprocess.run(
            [minisgl_binary, "generate", "--model", folder, "--input", requests, "--json",
             "--max-tokens", "24", "--ignore-eos", *flags],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        return json.loads(done.stdout)["token_ids"]

    return run


@pytest.fixture
def advised(tmp_path):
    """A folder whose generation_config.json asks for heat, so that greedy answers are told apart."""
    folder = shutil.copytree(tiny_model("qwen3"), tmp_path / "advised")
    (folder / "generation_config.json").write_text('{"do_sample": true, "temperature": 2.0}')
    return folder


def test_generate_samples_as_the_model_advises_unless_asked_otherwise(generate, advised):
    greedy = generate(tiny_model("qwen3"), "--temperature", "0")
    assert generate(advised, "--temperature", "0") == greedy, "a flag wins"
    assert generate(advised, "--generation-config", "none") == greedy
    assert generate(advised, sampling={"temperature": 0}) == greedy, "a line of the file wins"
    assert generate(advised) != greedy


def test_the_server_samples_as_the_model_advises_unless_asked_otherwise(minisgl_binary, advised):
    server = Server(minisgl_binary, advised)
    try:

        def ids(**fields):
            body = {"prompt": IDS, "max_tokens": 24, "ignore_eos": True, **fields}
            request = urllib.request.Request(
                f"{server.url}/v1/completions", json.dumps(body).encode()
            )
            with urllib.request.urlopen(request, timeout=60) as reply:
                return json.load(reply)["choices"][0]["text"]

        greedy = ids(temperature=0)
        assert ids(temperature=0) == greedy
        assert ids() != greedy
        assert "temperature 2" in server.log()
    finally:
        server.stop()


def test_a_dtype_and_bf16_arithmetic_can_be_chosen(generate):
    exact = generate(tiny_model("llama-f32"), "--temperature", "0")
    assert generate(tiny_model("llama-f32"), "--temperature", "0", "--dtype", "float32") == exact
    half = generate(tiny_model("llama-f32"), "--temperature", "0", "--dtype", "bfloat16")
    assert len(half) == len(exact)
    fast = generate(tiny_model("llama"), "--temperature", "0", "--compute", "bf16")
    assert len(fast) == len(exact)


def test_config_json_alone_makes_a_model_of_dummy_weights(generate, tmp_path):
    folder = tmp_path / "alone"
    folder.mkdir()
    shutil.copy(TINY / "qwen2" / "config.json", folder)
    first = generate(folder, "--dummy-weight")
    assert first == generate(folder, "--dummy-weight"), "always the same weights"


@pytest.mark.parametrize(
    ("where", "token"), [("config", 175), ("generation_config", 141), ("tokenizer", 37)]
)
def test_every_end_of_sequence_id_ends_an_answer(minisgl_binary, tmp_path, where, token):
    """MOD-3: all that any of the three files names, and none of it in the text."""
    prompt = json.loads((tiny_model("llama") / "golden.json").read_text())["prompts"][1]
    folder = shutil.copytree(tiny_model("llama"), tmp_path / "ended")
    config = json.loads((folder / "config.json").read_text())
    config["eos_token_id"] = [3, token if where == "config" else 4]
    (folder / "config.json").write_text(json.dumps(config))
    ends = [4, token if where == "generation_config" else 5]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    if where == "tokenizer":
        vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        settings["eos_token"] = next(text for text, i in vocabulary.items() if i == token)
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    lines = [
        {"temperature": 0, "max_tokens": 12},
        {"temperature": 0, "max_tokens": 12, "ignore_eos": True},
        {"temperature": 0, "max_tokens": 12, "ignore_eos": True, "stop_token_ids": [565]},
    ]
    requests = tmp_path / "requests.jsonl"
    requests.write_text(
        "\n".join(json.dumps({"token_ids": prompt["ids"], "sampling": line}) for line in lines)
    )
    done = subprocess.run(
        [minisgl_binary, "generate", "--model", folder, "--input", requests, "--json"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    ended, whole, stopped = (json.loads(line) for line in done.stdout.splitlines())
    greedy = prompt["greedy"]
    assert ended["token_ids"] == greedy[: greedy.index(token) + 1]
    assert ended["finish_reason"] == "stop"
    assert whole["text"].startswith(ended["text"])
    assert len(ended["text"]) < len(whole["text"])
    assert whole["token_ids"] == greedy[:12]
    assert whole["finish_reason"] == "length"
    assert stopped["token_ids"] == greedy[: greedy.index(565) + 1]
    assert stopped["finish_reason"] == "stop"


def test_ids_without_a_token_are_taken_and_are_no_text(minisgl_binary):
    """LIM-3: the padding of a model's vocabulary."""
    server = Server(minisgl_binary, tiny_model("qwen3"))
    try:
        padding = 630  # the tokenizer has 607 ids, the model 640
        asked = {"max_tokens": 3, "temperature": 0, "logit_bias": {padding: 100}, "logprobs": 1}
        body = complete(server.port, [5, padding], **asked).json
        assert body["choices"][0]["text"] == ""
        assert body["usage"]["completion_tokens"] == 3
        assert complete(server.port, [640], max_tokens=1).status == 400
    finally:
        server.stop()


def test_a_prompt_with_a_second_bos_keeps_it_and_is_warned_of(minisgl_binary, tmp_path):
    """TOK-3: as Hugging Face tokenizes it, but not in silence."""
    folder = tiny_model("mistral")
    for prompt, warned in [("hi", False), ("<s>hi", True)]:
        done = subprocess.run(
            [minisgl_binary, "generate", "--model", folder, "--prompt", prompt, "--max-tokens", "1"],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        assert ("begins with <s>" in done.stderr) == warned, done.stderr
