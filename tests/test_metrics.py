"""/metrics, read as Prometheus reads it."""

import contextlib

import pytest
from http_tools import ask, chat, complete, open_request, post, wait_idle, wait_until
from prometheus_client.parser import text_string_to_metric_families

PROMPT = list(range(100, 140))
# What vLLM's users have on their dashboards: name of the series, its type.
VLLM_NAMES = {
    "num_requests_running": "gauge",
    "num_requests_waiting": "gauge",
    "kv_cache_usage_perc": "gauge",
    "gpu_cache_usage_perc": "gauge",
    "prompt_tokens_total": "counter",
    "generation_tokens_total": "counter",
    "prefix_cache_queries_total": "counter",
    "prefix_cache_hits_total": "counter",
    "num_preemptions_total": "counter",
    "request_success_total": "counter",
    "time_to_first_token_seconds": "histogram",
    "inter_token_latency_seconds": "histogram",
    "time_per_output_token_seconds": "histogram",
    "e2e_request_latency_seconds": "histogram",
    "request_queue_time_seconds": "histogram",
    "request_prefill_time_seconds": "histogram",
    "request_decode_time_seconds": "histogram",
    "request_inference_time_seconds": "histogram",
    "request_prompt_tokens": "histogram",
    "request_generation_tokens": "histogram",
}


class Metrics:
    """One scrape: families by name, values by name and labels."""

    def __init__(self, port: int):
        reply = ask(port, "GET", "/metrics")
        assert reply.status == 200
        assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        self.families = {f.name: f for f in text_string_to_metric_families(reply.body.decode())}

    def __call__(self, name: str, **labels: str) -> float:
        """The one value of minisgl:`name` that has these labels, or the sum of all of them."""
        values = [
            s.value
            for family in self.families.values()
            for s in family.samples
            if s.name == f"minisgl:{name}" and labels.items() <= s.labels.items()
        ]
        assert values, name
        return sum(values)


@pytest.fixture(scope="module")
def quiet_server(start_server):
    """A server to which nobody else talks."""
    server = start_server("--served-model-name", 'a "quoted" \\ name', "--graph", "4")
    yield server
    server.stop()


def test_names_and_types_are_those_of_vllm(quiet_server):
    families = Metrics(quiet_server.port).families
    for name, kind in VLLM_NAMES.items():
        family = families[f"minisgl:{name.removesuffix('_total')}"]
        assert family.type == kind, name
        assert family.documentation
        for sample in family.samples:
            assert sample.labels["model_name"] == 'a "quoted" \\ name'
            assert sample.labels["engine"] == "0"


def test_histograms_are_consistent(quiet_server):
    complete(quiet_server.port, PROMPT, max_tokens=3)
    for family in Metrics(quiet_server.port).families.values():
        if family.type != "histogram":
            continue
        buckets = [s for s in family.samples if s.name.endswith("_bucket")]
        bounds = [float(s.labels["le"]) for s in buckets]
        assert bounds == sorted(set(bounds))
        assert bounds[-1] == float("inf")
        counts = [s.value for s in buckets]
        assert counts == sorted(counts)
        (count,) = [s.value for s in family.samples if s.name.endswith("_count")]
        assert count == counts[-1]


def test_counters_tell_what_was_served(quiet_server):
    port = quiet_server.port
    wait_idle(port)
    before = Metrics(port)
    prompt = [7, *PROMPT]
    for _ in range(2):  # the second time the prompt is cached, but for its last token
        assert complete(port, prompt, max_tokens=5, ignore_eos=True).status == 200
    assert chat(port, max_tokens=4, n=2, ignore_eos=True, stream=True).status == 200
    wait_idle(port)
    after = Metrics(port)

    def gained(name: str, **labels: str) -> float:
        return after(name, **labels) - before(name, **labels)

    assert gained("generation_tokens_total") == 2 * 5 + 2 * 4
    assert gained("prompt_tokens_total") == gained("prefix_cache_queries_total")
    assert gained("prompt_tokens_total") >= 2 * len(prompt)
    assert gained("prefix_cache_hits_total") >= len(prompt) - 1
    assert gained("request_success_total", finished_reason="length") == 4
    assert gained("request_success_total") == 4
    assert gained("time_to_first_token_seconds_count") == 4
    assert gained("inter_token_latency_seconds_count") == 2 * 4 + 2 * 3
    assert gained("e2e_request_latency_seconds_count") == 4
    for name in ("queue", "prefill", "decode", "inference"):
        assert gained(f"request_{name}_time_seconds_count") == 4
    assert gained("request_inference_time_seconds_sum") == pytest.approx(
        gained("request_prefill_time_seconds_sum") + gained("request_decode_time_seconds_sum")
    )
    assert gained("request_generation_tokens_sum") == 2 * 5 + 2 * 4
    assert (
        0 < gained("time_to_first_token_seconds_sum") <= gained("e2e_request_latency_seconds_sum")
    )


def test_work_of_the_engine_is_estimated(quiet_server):
    port = quiet_server.port
    wait_idle(port)
    before = Metrics(port)
    assert complete(port, [9, *PROMPT], max_tokens=20, ignore_eos=True).status == 200
    after = Metrics(port)
    flops = after("estimated_flops_per_gpu_total") - before("estimated_flops_per_gpu_total")
    tokens = 1 + len(PROMPT) + 19
    parameters = 106e6  # of SmolLM2-135M's layers; its head is another 28e6 for each answer token
    assert 2 * parameters * tokens <= flops <= 2 * parameters * tokens * 1.3
    read = after("estimated_read_bytes_per_gpu_total") - before(
        "estimated_read_bytes_per_gpu_total"
    )
    assert 20 * 80e6 < read < 20 * 110e6, "20 steps read a file of 98 MB"
    busy = after("engine_busy_seconds_total") - before("engine_busy_seconds_total")
    assert busy > 0
    assert after("achieved_flops_per_second") > 0
    assert after("achieved_bytes_per_second") > 0


def test_padding_of_graphs_is_counted(quiet_server):
    port = quiet_server.port
    before = Metrics(port)
    body = {"prompt": [[5, 6], [7, 8], [9, 10]], "max_tokens": 12, "ignore_eos": True}
    assert post(port, "/v1/completions", body).status == 200  # three rows in a graph of four
    after = Metrics(port)
    padding = after("graph_padding_rows_total") - before("graph_padding_rows_total")
    rows = after("graph_rows_total") - before("graph_rows_total")
    assert 0 < padding <= rows
    waste = after("graph_padding_rows_total") / after("graph_rows_total")
    assert after("graph_padding_waste") == pytest.approx(waste)


def test_gauges_follow_requests_and_aborts_are_counted(start_server):
    server = start_server("--max-running-requests", "1")
    port = server.port
    body = {"prompt": PROMPT, "max_tokens": 1500, "ignore_eos": True}
    with contextlib.closing(open_request(port, "/v1/completions", body)):
        wait_until(lambda: Metrics(port)("num_requests_running") == 1, 5, "starting")
        with contextlib.closing(open_request(port, "/v1/completions", body)):
            wait_until(lambda: Metrics(port)("num_requests_waiting") == 1, 5, "queueing")
        assert 0 < Metrics(port)("kv_cache_usage_perc") <= 1
    wait_until(
        lambda: Metrics(port)("request_success_total", finished_reason="abort") == 2, 5, "aborting"
    )
    wait_idle(port)
    assert Metrics(port)("num_requests_running") == 0
    assert Metrics(port)("kv_cache_usage_perc") == 0, "what is cached can be had at once"
    server.stop()
