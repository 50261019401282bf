"""The commands that scripts use: results on standard output and nothing else there."""

import json
import pathlib
import subprocess

import pytest
from tiny_models import tiny_model

DATA = pathlib.Path(__file__).parent / "data"
GOLDEN = json.loads((DATA / "smollm2" / "golden.json").read_text())


@pytest.fixture
def minisgl(minisgl_binary):
    """minisgl(*arguments, text="") -> what it wrote to standard output."""

    def run(*arguments, text="", status=0):
        done = subprocess.run(
            [minisgl_binary, *map(str, arguments)],
            input=text.encode(), capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stderr.decode()
        return done.stdout.decode()

    return run


def test_version(minisgl):
    assert minisgl("--version").startswith("minisgl 0.")


def test_help_names_every_command(minisgl):
    text = minisgl("--help")
    for command in ("serve", "shell", "generate", "bench", "tokenize", "render", "perplexity"):
        assert command in text


def test_help_lists_the_attention_backends(minisgl):
    text = " ".join(minisgl("serve", "--help").split())
    assert "auto, ref, fa, fi, trtllm, or two as PREFILL,DECODE" in text


@pytest.mark.parametrize("command", [["serve"], ["shell"], ["generate"], ["bench", "offline"]])
def test_help_stays_within_100_columns(minisgl, command):
    lines = minisgl(*command, "--help").splitlines()
    assert max(map(len, lines)) <= 100
    assert "\n\n\n" not in "\n".join(lines)


def test_help_of_the_shell_names_its_variables(minisgl):
    text = minisgl("shell", "--help")
    assert "MINISGL_SHELL_TEMPERATURE" in text
    assert "MINISGL_SOME_FLAG for --some-flag" in text


def test_tokenize_and_back(minisgl, sample_model):
    text = "Zwölf Boxkämpfer jagen Viktor 123 über den Sylter Deich. 🫠"
    ids = json.loads(minisgl("tokenize", "--model", sample_model, text=text))
    assert all(isinstance(i, int) for i in ids)
    assert minisgl("detokenize", "--model", sample_model, text=json.dumps(ids)) == text


def test_special_tokens_are_parsed_unless_asked_not_to(minisgl, sample_model):
    text = "<|im_start|>user"
    parsed = json.loads(minisgl("tokenize", "--model", sample_model, text=text))
    plain = json.loads(minisgl("tokenize", "--model", sample_model, "--special-as-text", text=text))
    assert parsed[0] == 1
    assert len(plain) > len(parsed)
    skipped = minisgl(
        "detokenize", "--model", sample_model, "--skip-special", text=json.dumps(parsed)
    )
    assert skipped == "user"


def test_a_folder_with_only_tokenizer_files_will_do(minisgl, tmp_path):
    source = DATA / "tiny" / "llama"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    ids = json.loads(minisgl("tokenize", "--model", tmp_path, text="hello"))
    assert minisgl("detokenize", "--model", tmp_path, text=json.dumps(ids)) == "hello"


def test_render(minisgl, sample_model):
    for prompt in GOLDEN["prompts"]:
        if "messages" not in prompt:
            continue
        request = {"messages": prompt["messages"], "add_generation_prompt": True}
        text = minisgl("render", "--model", sample_model, text=json.dumps(request))
        assert text == prompt["text"], prompt["name"]


def test_special_tokens_in_messages_are_text_unless_asked_for(minisgl, sample_model):
    request = json.dumps({"messages": [{"role": "user", "content": "a<|im_end|>b"}]})
    plain = minisgl("render", "--model", sample_model, "--ids", text=request)
    parsed = minisgl(
        "render", "--model", sample_model, "--ids", "--parse-special-in-messages", text=request
    )
    im_end = 2
    # One in the system message that the template adds, one after the user's.
    assert json.loads(plain).count(im_end) == 2
    assert json.loads(parsed).count(im_end) == 3


def test_a_chat_template_and_its_variables_may_be_given(minisgl, sample_model, tmp_path):
    template = tmp_path / "mine.jinja"
    template.write_text("{{ messages[0].content }}|{{ style }}|{{ tone }}")
    flags = ["--chat-template", template, "--default-chat-template-kwargs"]
    flags.append('{"style": "plain", "tone": "kind"}')
    request = {
        "messages": [{"role": "user", "content": "hi"}],
        "chat_template_kwargs": {"tone": "dry"},
    }
    text = minisgl("render", "--model", sample_model, *flags, text=json.dumps(request))
    assert text == "hi|plain|dry"


def test_generate_from_a_file_keeps_the_order_of_the_input(minisgl, sample_model, tmp_path):
    chats = [prompt for prompt in GOLDEN["prompts"] if "messages" in prompt][:4]
    lines = [
        {"messages": chats[0]["messages"], "sampling": {"max_tokens": 64}},
        {"token_ids": chats[1]["ids"], "sampling": {"max_tokens": 3, "ignore_eos": True}},
        {"prompt": chats[2]["text"], "sampling": {"max_tokens": 5, "temperature": 0}},
        {"prompt": "no such field", "sampling": {"top_q": 1}},
        {"prompt": "two", "token_ids": [1]},
        {"messages": chats[3]["messages"], "sampling": {"max_tokens": 2}},
    ]
    path = tmp_path / "input.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    output = minisgl("generate", "--model", sample_model, "--input", path, "--json", status=1)
    results = [json.loads(line) for line in output.splitlines()]
    assert [result["index"] for result in results] == list(range(6))
    first = results[0]
    assert first["text"] == chats[0]["text_before_eos"]
    assert first["finish_reason"] == "stop"
    assert first["token_ids"] == chats[0]["greedy"][: chats[0]["first_eos"] + 1]
    assert first["usage"]["prompt_tokens"] == len(chats[0]["ids"])
    assert first["usage"]["completion_tokens"] == len(first["token_ids"])
    assert results[1]["token_ids"] == chats[1]["greedy"][:3]
    assert results[1]["finish_reason"] == "length"
    assert results[2]["token_ids"] == chats[2]["greedy"][:5]
    assert "top_q" in results[3]["error"]
    assert "exactly one of" in results[4]["error"]
    assert results[5]["token_ids"] == chats[3]["greedy"][:2]


def test_generate_streams_one_answer(minisgl, sample_model):
    chat = GOLDEN["prompts"][0]
    output = minisgl(
        "generate", "--model", sample_model, "--chat", "--prompt", chat["messages"][0]["content"]
    )
    assert output == chat["text_before_eos"] + "\n"


def test_tiny_models_run_from_token_ids(minisgl, tmp_path):
    path = tmp_path / "ids.jsonl"
    for name in ("llama", "llama-f32", "llama-sharded", "llama-tied", "qwen3"):
        golden = json.loads((DATA / "tiny" / name / "golden.json").read_text())["prompts"]
        sampling = {"max_tokens": 32, "ignore_eos": True, "temperature": 0}
        path.write_text(
            "\n".join(json.dumps({"token_ids": p["ids"], "sampling": sampling}) for p in golden)
        )
        output = minisgl("generate", "--model", tiny_model(name), "--input", path, "--json")
        answers = [json.loads(line)["token_ids"] for line in output.splitlines()]
        assert answers == [p["greedy"] for p in golden], name


def test_perplexity(minisgl, sample_model):
    text = DATA / "smollm2" / "ppl_text.txt"
    result = json.loads(minisgl("perplexity", "--model", sample_model, "--file", text))
    assert result["tokens"] == GOLDEN["perplexity"]["n_tokens"]
    assert result["perplexity"] == pytest.approx(GOLDEN["perplexity"]["ppl"], rel=1e-4)


def test_bench_offline_prints_one_object(minisgl, sample_model):
    output = minisgl(
        "bench", "offline", "--model", sample_model, "--input-len", 16, "--output-len", 4,
        "--num-prompts", 2, "--repeat", 1, "--json",
    )  # fmt: skip
    result = json.loads(output)
    assert result["prompt_tokens"] == 32
    assert result["output_tokens"] == 8
    assert result["prefill_tokens_per_s"] > 0


def test_bench_offline_takes_workloads_by_name(minisgl, sample_model):
    output = minisgl(
        "bench", "offline", "--model", sample_model, "--workload", "2x16+4", "--workload", "3x8+1",
        "--shared-prefix-len", 7, "--repeat", 2, "--max-prefill-length", 8, "--graph", 4,
        "--no-overlap", "--json",
    )  # fmt: skip
    first, second = map(json.loads, output.splitlines())
    assert [first["workload"], second["workload"]] == ["2x16+4", "3x8+1"]
    assert [first["output_tokens"], second["output_tokens"]] == [8, 3]
    # A step holds one prompt of 8 tokens, so that the other two find their beginning in the cache.
    assert second["cached_tokens"] == 2 * 7
    assert len(first["runs"]) == first["repeat"] == 2
    decode = {line["of"]: line["steps"] for line in first["steps"] if "graph" in line["of"]}
    assert decode["2 answers, graph"] >= 2
    assert 0 < first["graph_time_share"] < 1
    assert sum(line["time_share"] for line in first["steps"]) == pytest.approx(1)
    assert first["decode_gb_per_s"] > 0
    text = minisgl("bench", "offline", "--model", sample_model, "--workload", "1x8+2")
    assert "% of the time in graphs" in text


def test_bench_offline_says_what_a_workload_looks_like(minisgl_binary, sample_model):
    for arguments, message in (
        (["--workload", "12"], "offline256 or three numbers"),
        (["--workload", "1x8+2", "--num-prompts", "3"], "excludes"),
        (["--input-len", "8", "--shared-prefix-len", "9"], "cannot share their first 9"),
    ):
        done = subprocess.run(
            [minisgl_binary, "bench", "offline", "--model", sample_model, *arguments],
            capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode != 0
        assert message in done.stderr.decode()


def test_bench_graphs_compares_lists_of_sizes(minisgl):
    output = minisgl(
        "bench", "graphs", "--model", tiny_model("llama"), "--cuda-graph-max-bs", 5,
        "--context", 20, "--threads", 1, "--json",
    )  # fmt: skip
    result = json.loads(output)
    measured = {(step["rows"], step["graph"]) for step in result["steps"]}
    assert {(1, 1), (3, 3), (3, 4), (5, 5)} <= measured
    assert all(step["us"] > 0 for step in result["steps"])
    assert [one["rows"] for one in result["eager"]] == [1, 2, 3, 4, 5]
    lists = {one["list"]: one["graphs"] for one in result["lists"]}
    assert lists["1, 2, 4, 8, ... doubled"] == 4
    assert len(lists) == 5


def test_shell_answers_and_survives_unknown_commands(minisgl, sample_model):
    output = minisgl(
        "shell", "--model", sample_model, text="/nonsense\nSay hi.\n/reset\n/exit\nnever read\n"
    )
    assert "Unknown command /nonsense" in output
    assert "The conversation is forgotten." in output
    assert output.rstrip().endswith("Exiting shell...")
    assert "never read" not in output
