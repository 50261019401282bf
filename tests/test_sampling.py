"""What requests ask of the sampler, with a real model: the same alone and among others."""

import json
import math
import subprocess

import pytest

WORDS = ["river", "engine", "paper", "cloud", "violin", "winter", "copper", "garden"]


def requests():
    """Fifty requests that ask for something different each."""
    result = []
    for i in range(50):
        sampling = {"max_tokens": 4 + i % 9, "seed": i}
        if i % 2:
            sampling |= {"temperature": 0.8, "top_p": 0.95}
        if i % 3 == 0:
            sampling |= {"presence_penalty": 0.7, "frequency_penalty": 0.4}
        if i % 4 == 1:
            sampling |= {"repetition_penalty": 1.2}
        if i % 5 == 2:
            sampling |= {"logit_bias": {str(100 + i): 3, "284": -100}}
        if i % 3 == 1:
            sampling |= {"num_logprobs": i % 6}
        if i % 10 == 4:
            sampling |= {"prompt_logprobs": 1}
        if i % 6 == 5:
            sampling |= {"min_tokens": 4}
        prompt = f"A short story about a {WORDS[i % 8]} and a {WORDS[i // 8]}:"
        result.append({"prompt": prompt, "sampling": sampling})
    return result


@pytest.fixture
def generate(minisgl_binary, sample_model, tmp_path):
    """generate(lines, *arguments) -> what `minisgl generate --input` answered to each."""

    def run(lines, *arguments):
        path = tmp_path / "requests.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        done = subprocess.run(
            [minisgl_binary, "generate", "--model", sample_model, "--input", path, "--json",
             *arguments],
            capture_output=True, timeout=300, check=False,
        )  # fmt: skip
        answers = [json.loads(line) for line in done.stdout.decode().splitlines()]
        assert done.returncode == any("error" in a for a in answers), done.stderr.decode()
        return answers

    return run


def without_place(answer):
    """An answer without its number and without what depends on the cache."""
    return {k: v for k, v in answer.items() if k not in ("index", "usage")}


@pytest.mark.batch_independent
def test_fifty_requests_get_what_each_gets_alone(generate):
    lines = requests()
    together = generate(lines, "--page-size", "16", "--max-prefill-length", "64")
    assert [a.get("error") for a in together] == [None] * 50
    for i in (0, 1, 4, 7, 12, 25, 34):
        (alone,) = generate([lines[i]], "--page-size", "1")
        assert without_place(alone) == without_place(together[i]), lines[i]


def test_log_probabilities_are_of_the_model_whatever_the_draw(generate):
    prompt = "The capital of France is"
    lines = [
        {"prompt": prompt, "sampling": {"max_tokens": 3, "num_logprobs": 5}},
        {"prompt": prompt, "sampling": {"max_tokens": 3, "num_logprobs": 5, "temperature": 1.5,
                                        "seed": 1, "presence_penalty": 1.5}},
        {"prompt": prompt, "sampling": {"max_tokens": 0, "prompt_logprobs": 5}},
        {"prompt": prompt, "sampling": {"max_tokens": 3}},
    ]  # fmt: skip
    greedy, drawn, scored, plain = generate(lines)
    assert greedy["token_ids"] == plain["token_ids"]
    assert "logprobs" not in plain
    # Both begin at the same place, so they see the same alternatives there.
    assert greedy["logprobs"][0]["top_logprobs"] == drawn["logprobs"][0]["top_logprobs"]
    assert greedy["logprobs"][0]["token"] == greedy["logprobs"][0]["top_logprobs"][0]["token"]
    for answer in (greedy, drawn):
        for position in answer["logprobs"]:
            values = [entry["logprob"] for entry in position["top_logprobs"]]
            assert values == sorted(values, reverse=True)
            assert len(values) == 5
            assert math.fsum(math.exp(v) for v in values) <= 1 + 1e-5
        total = math.fsum(p["logprob"] for p in answer["logprobs"])
        assert answer["cumulative_logprob"] == pytest.approx(total)
    assert scored["token_ids"] == []
    assert scored["prompt_logprobs"][0] is None
    assert (
        "".join(p["token"] for p in scored["prompt_logprobs"][1:]) == "The capital of France is"[3:]
    )


def test_a_bias_forces_and_forbids(generate):
    base = {"prompt": "One two three", "sampling": {"max_tokens": 4, "ignore_eos": True}}
    (free,) = generate([base])
    first = free["token_ids"][0]
    forced = base["sampling"] | {"logit_bias": {"260": 100}}
    forbidden = base["sampling"] | {"logit_bias": {str(first): -100}}
    wrong = base["sampling"] | {"logit_bias": {"99999999": 1}}
    answers = generate([base | {"sampling": s} for s in (forced, forbidden, wrong)])
    assert answers[0]["token_ids"] == [260] * 4
    assert first not in answers[1]["token_ids"]
    assert answers[2]["error"].startswith("logit_bias names token 99999999; the vocabulary has")
