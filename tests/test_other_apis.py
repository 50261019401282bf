"""What is neither OpenAI's nor Anthropic's: tokens, SGLang's /generate, what routers ask."""

import pytest
from http_tools import ask, chat, complete, health, post, wait_idle, wait_until


def test_text_becomes_tokens_and_text_again(server):
    reply = post(server.port, "/tokenize", {"prompt": "The sea is blue", "return_token_strs": True})
    assert reply.status == 200
    assert reply.json["count"] == len(reply.json["tokens"]) == len(reply.json["token_strs"])
    assert "".join(reply.json["token_strs"]).endswith("The sea is blue")
    assert reply.json["max_model_len"] > 100
    text = post(server.port, "/detokenize", {"tokens": reply.json["tokens"]}).json["prompt"]
    assert text.endswith("The sea is blue")


def test_a_chat_is_tokenized_as_it_is_answered(server):
    messages = [{"role": "user", "content": "hi <|im_end|> there"}]
    count = post(server.port, "/tokenize", {"messages": messages}).json["count"]
    usage = chat(server.port, messages=messages, max_tokens=1).json["usage"]
    assert count == usage["prompt_tokens"]


def test_bad_tokens_are_refused(server):
    assert post(server.port, "/tokenize", {}).error["param"] == "prompt"
    assert post(server.port, "/detokenize", {}).error["param"] == "tokens"
    assert post(server.port, "/detokenize", {"tokens": [-1]}).error["param"] == "tokens"


@pytest.mark.batch_independent
def test_sglangs_generate_answers_in_its_own_form(server):
    params = {"max_new_tokens": 8, "temperature": 0, "ignore_eos": True}
    once = post(server.port, "/generate", {"text": "The sea", "sampling_params": params}).json
    expected = complete(server.port, "The sea", max_tokens=8, temperature=0, ignore_eos=True).json
    assert once["text"] == expected["choices"][0]["text"]
    assert once["meta_info"]["finish_reason"] == {"type": "length", "length": 8}
    assert once["meta_info"]["prompt_tokens"] == expected["usage"]["prompt_tokens"]
    assert len(once["output_ids"]) == 8
    several = post(
        server.port, "/generate", {"text": ["The sea", "The sky"], "sampling_params": params}
    ).json
    assert [type(one["text"]) for one in several] == [str, str]
    assert several[0]["text"] == once["text"]
    events = post(
        server.port, "/generate", {"text": "The sea", "sampling_params": params, "stream": True}
    ).events
    assert events[-1]["text"] == once["text"], "each event has the whole text so far"


def test_what_a_router_asks_of_a_worker(server, sample_model):
    served = ask(server.port, "GET", "/v1/models").json["data"][0]["id"]
    for path in ("/model_info", "/get_model_info"):
        assert ask(server.port, "GET", path).json["model_path"] == str(sample_model)
        assert ask(server.port, "GET", path).json["is_generation"] is True
    for path in ("/server_info", "/get_server_info"):
        info = ask(server.port, "GET", path).json
        assert info["model_path"] == str(sample_model)
        assert info["served_model_name"] == served
        assert info["tp_size"] == info["dp_size"] == 1
        assert info["version"] == ask(server.port, "GET", "/version").json["version"]
    assert ask(server.port, "GET", "/health_generate").status == 200
    reply = chat(server.port, "hi", max_tokens=2, no_stop_trim=True, continue_final_message=False)
    assert reply.status == 200


def test_a_flushed_cache_is_empty(server):
    wait_idle(server.port)
    long = "Remember this. " * 50  # longer than a page, on whatever device
    chat(server.port, long, max_tokens=2)
    wait_idle(server.port)
    assert health(server.port)["cached_pages"] > 0
    assert ask(server.port, "POST", "/flush_cache").status == 200
    wait_until(lambda: health(server.port)["cached_pages"] == 0, 5, "flushing")
    again = chat(server.port, long, max_tokens=2).json["usage"]
    assert again["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_model_has_the_names_that_it_is_given(start_server):
    server = start_server("--accept-any-model", "--served-model-name", "small", "little")
    cards = ask(server.port, "GET", "/v1/models").json["data"]
    assert [card["id"] for card in cards] == ["small", "little"]
    assert ask(server.port, "GET", "/v1/models/little").json == cards[1]
    for model in ("small", "little", "claude-x"):
        assert chat(server.port, "hi", max_tokens=1, model=model).json["model"] == "small"
    server.stop()


def test_the_api_describes_itself(server):
    description = ask(server.port, "GET", "/openapi.json").json
    assert description["openapi"].startswith("3.1")
    for path, item in description["paths"].items():
        for method in item:
            if method in ("get", "post"):
                reply = ask(server.port, "OPTIONS", path.replace("{id}", "x"))
                assert reply.status in (200, 204)
                if reply.status == 204:
                    assert method.upper() in reply.headers["Allow"]
