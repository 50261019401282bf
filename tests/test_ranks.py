"""One model on several processes: the same answers, and what happens when one of them fails."""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest
from http_tools import complete, health, wait_until
from ranked_server import RankedServer, Streams, children_of, is_alive
from tiny_models import tiny_model


@pytest.fixture
def run_server(minisgl_binary):
    """run_server(model, *arguments, before=[...], env={...}) -> RankedServer, killed afterwards."""
    servers = []

    def run(model, *arguments, before=(), env=None) -> RankedServer:
        command = [*before, minisgl_binary, "serve", "--model", model, "--port", 0,
                   "--device", "cpu", *arguments]  # fmt: skip
        servers.append(RankedServer(command, env))
        return servers[-1]

    yield run
    for server in servers:
        server.kill()


@pytest.fixture(scope="module")
def patient_model(tmp_path_factory) -> pathlib.Path:
    """A tiny model whose answers may be so long that there is time for something to happen."""
    folder = tmp_path_factory.mktemp("patient") / "model"
    shutil.copytree(tiny_model("qwen3"), folder)
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 32768
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory) -> pathlib.Path:
    """A model that takes some time to load."""
    folder = tmp_path_factory.mktemp("slow") / "model"
    write_large_model(folder, num_layers=4)
    return folder


def write_large_model(folder: pathlib.Path, num_layers: int) -> int:
    """A Llama of zeros, which take no room on a disk. Returns the bytes of its weights."""
    hidden, inner, vocab, heads = 2048, 8192, 32000, 16
    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "intermediate_size": inner,
        "num_attention_heads": heads, "num_key_value_heads": heads, "vocab_size": vocab,
        "num_hidden_layers": num_layers, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "eos_token_id": 2,
    }  # fmt: skip
    shapes = {"model.embed_tokens.weight": [vocab, hidden], "lm_head.weight": [vocab, hidden],
              "model.norm.weight": [hidden]}  # fmt: skip
    for layer in range(num_layers):
        scope = f"model.layers.{layer}."
        for name in "qkvo":
            shapes[f"{scope}self_attn.{name}_proj.weight"] = [hidden, hidden]
        for name in ("gate", "up"):
            shapes[f"{scope}mlp.{name}_proj.weight"] = [inner, hidden]
        shapes[f"{scope}mlp.down_proj.weight"] = [hidden, inner]
        for name in ("input", "post_attention"):
            shapes[f"{scope}{name}_layernorm.weight"] = [hidden]
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    return at


def peak_bytes(pid: int) -> int:
    """Most memory that the process ever had resident."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def generate(binary, model, *arguments, **kwargs) -> subprocess.CompletedProcess:
    command = [binary, "generate", "--device", "cpu", "--num-pages", "2048", "--model", model]
    return subprocess.run(
        [*map(str, command), *map(str, arguments)],
        capture_output=True, text=True, timeout=120, check=False, **kwargs,
    )  # fmt: skip


def test_three_ranks_answer_as_one_does(minisgl_binary, sample_model):
    asked = ("--prompt", "The capital of France is", "--max-tokens", "24", "--json")
    alone = generate(minisgl_binary, sample_model, *asked)
    ranked = generate(minisgl_binary, sample_model, *asked, "--tp", "3", "--check-ranks")
    assert ranked.returncode == 0, ranked.stderr
    assert ranked.stderr == alone.stderr == ""
    assert json.loads(ranked.stdout) == json.loads(alone.stdout)


def test_sizes_that_do_not_divide_are_refused_at_once(minisgl_binary):
    result = generate(
        minisgl_binary, tiny_model("llama-tied"), "--prompt", "x", "--tensor-parallel-size", "2"
    )
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == (
        "minisgl: the model cannot be divided over 2 ranks: it has 3 query heads; "
        "possible are --tp 1, 3\n"
    )


def test_a_served_model_answers_many_and_ends_when_it_is_told_to(run_server):
    server = run_server(tiny_model("qwen3"), "--tp", "2", "--check-ranks").wait_until_ready()
    assert len(server.ranks) == 1
    alone = run_server(tiny_model("qwen3")).wait_until_ready()
    answers: dict[int, tuple] = {}

    def ask(index: int) -> None:
        fields = {"max_tokens": 5 + index % 7, "ignore_eos": True, "temperature": 0.7,
                  "seed": index}  # fmt: skip
        prompt = [1 + (index * 7 + at) % 200 for at in range(3 + index % 40)]
        both = [complete(each.port, prompt, **fields) for each in (server, alone)]
        answers[index] = tuple(
            (reply.status, reply.json["choices"][0]["text"], reply.json["usage"]["total_tokens"])
            for reply in both
        )

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 24
    for index, (ranked, single) in answers.items():
        assert ranked[0] == 200
        assert ranked == single, index
    assert server.stop() == 0
    assert "Stopped" in server.log()


def test_formats_bind_every_rank(run_server):
    server = run_server(tiny_model("qwen3"), "--tp", "2", "--check-ranks").wait_until_ready()
    reply = complete(
        server.port, "Say it:", max_tokens=40, structured_outputs={"choice": ["yes", "no"]}
    )
    assert reply.status == 200, reply.body
    assert reply.json["choices"][0]["text"] in ("yes", "no")
    assert reply.json["choices"][0]["finish_reason"] == "stop"
    assert server.stop() == 0


LIMIT_S = 2  # --distributed-timeout of servers whose ranks fail


class Clients:
    """Of a server with two rows: two streams that run, one that waits, and a whole reply that
    waits."""

    def __init__(self, server: RankedServer, prompt: list[int], wait_for_event: bool):
        self._streams = [
            Streams(server.port, 2, prompt=prompt, wait_for_event=wait_for_event),
            Streams(server.port, 1, prompt=prompt, wait_for_event=False),
        ]
        self._replies: list = []

        def ask_for_whole() -> None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._replies.append(complete(server.port, prompt, max_tokens=4000))

        self._whole = threading.Thread(target=ask_for_whole)
        self._whole.start()
        wait_until(lambda: health(server.port)["requests"] == 4, 10, "beginning")

    def expect_errors(self, timeout_s: float, words: str, events: bool) -> None:
        """Every client gets one error within the time, which says so; only some got more."""
        for text in self._streams[0].join(timeout_s) + self._streams[1].join(timeout_s):
            assert text.count(b'"error"') == 1, text[-500:]
            assert words.encode() in text, text[-500:]
            if not events:
                assert b'"choices"' not in text, "the prompt was computed already"
        self._whole.join(timeout_s)
        assert self._replies, "a whole reply did not come"
        assert self._replies[0].status == 500
        assert words in self._replies[0].error["message"]


def begin_state(server: RankedServer, state: str) -> Clients | None:
    """Brings a server that has started into a state."""
    if state == "loading":
        server.wait_for_ranks(1)
        wait_until(lambda: peak_bytes(server.ranks[0]) > 150 << 20, 20, "reading weights")
        assert "Ready" not in server.log()
        return None
    server.wait_until_ready()
    prompt = [5 + index % 200 for index in range(7000)] if state == "prefill" else [1, 2, 3]
    clients = Clients(server, prompt, wait_for_event=state != "prefill")
    if state == "shutdown":
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "Stopping: running answers" in server.log(), 5, "beginning to stop")
    return clients


@pytest.fixture
def run_in_state(run_server, patient_model, slow_model):
    """run_in_state(state) -> (RankedServer of two ranks, its clients)."""

    def run(state: str) -> tuple[RankedServer, Clients | None]:
        model, pages = (slow_model, "64") if state == "loading" else (patient_model, "32768")
        server = run_server(
            model, "--tp", "2", "--distributed-timeout", LIMIT_S, "--num-pages", pages,
            "--max-running-requests", "2", "--max-prefill-length", "16",
        )  # fmt: skip
        return server, begin_state(server, state)

    return run


STATES = ["loading", "prefill", "decode", "shutdown"]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_fails_is_told_to_every_client_and_ends_the_server(run_in_state, state, how):
    server, clients = run_in_state(state)
    begin = time.monotonic()
    server.signal_rank(how)
    told_after = 3 if how == signal.SIGKILL else LIMIT_S + 3
    words = "was killed by signal 9" if how == signal.SIGKILL else f"not answer within {LIMIT_S} s"
    if clients is not None:
        clients.expect_errors(told_after, words, events=state != "prefill")
    told = time.monotonic() - begin
    # A rank that hangs while others load is missed when they have loaded.
    loads = state == "loading" and how == signal.SIGSTOP
    assert server.wait_for_end(60 if loads else 10) == 1
    ended = time.monotonic() - begin
    print(f"{state} {how.name}: told after {told:.2f} s, ended after {ended:.2f} s")
    assert loads or ended < told_after + 1
    if how == signal.SIGKILL:
        assert f"rank 1 (process {server.ranks[0]}) was killed by signal 9 (Killed)" in server.log()
    else:
        assert "rank 1" in server.log()
        assert "--distributed-timeout" in server.log()


@pytest.mark.parametrize("state", STATES)
def test_the_death_of_the_first_rank_ends_the_others(run_in_state, state):
    server, _ = run_in_state(state)
    server.signal_rank(signal.SIGKILL, rank=0)
    assert server.wait_for_end(5) == -signal.SIGKILL


def test_others_do_not_wait_for_a_first_rank_that_hangs(run_in_state):
    server, clients = run_in_state("decode")
    server.signal_rank(signal.SIGSTOP, rank=0)
    wait_until(lambda: not is_alive(server.ranks[0]), LIMIT_S + 3, "the end of rank 1")
    server.signal_rank(signal.SIGCONT, rank=0)
    clients.expect_errors(5, "rank 1", events=True)
    assert server.wait_for_end(5) == 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_an_idle_server_notices_a_rank_that_is_gone(run_server, how):
    server = run_server(
        tiny_model("qwen3"), "--tp", "2", "--distributed-timeout", "2"
    ).wait_until_ready()
    begin = time.monotonic()
    server.signal_rank(how)
    assert server.wait_for_end(10) == 1
    assert time.monotonic() - begin < 8
    assert "The engine has failed" in server.log()


def test_a_rank_that_does_not_end_is_killed(run_server):
    server = run_server(
        tiny_model("qwen3"), "--tp", "2", "--distributed-timeout", "2"
    ).wait_until_ready()
    server.process.send_signal(signal.SIGTERM)
    server.signal_rank(signal.SIGSTOP)
    assert server.wait_for_end(10) == 1


def test_a_rank_of_another_launcher_that_dies_is_told_too(run_server, patient_model):
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    arguments = ("--num-pages", "32768", "--max-running-requests", "2")
    second = run_server(patient_model, *arguments, env={**place, "RANK": "1"})
    first = run_server(patient_model, *arguments, env={**place, "RANK": "0"}).wait_until_ready()
    clients = Clients(first, [1, 2, 3], wait_for_event=True)
    begin = time.monotonic()
    second.process.kill()
    clients.expect_errors(5, "rank 1", events=True)
    assert first.wait_for_end(5) == 1
    assert time.monotonic() - begin < 5


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_another_launcher_may_start_the_ranks(run_server):
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    second = run_server(tiny_model("llama"), env={**place, "RANK": "1"})
    first = run_server(tiny_model("llama"), env={**place, "RANK": "0"}).wait_until_ready()
    assert children_of(first.process.pid) == []
    reply = complete(first.port, [1, 2, 3], max_tokens=4, ignore_eos=True)
    assert reply.status == 200
    second.process.send_signal(signal.SIGTERM)  # as launchers do, to all; rank 0 decides
    assert complete(first.port, [1, 2, 3], max_tokens=4, ignore_eos=True).status == 200
    assert first.stop() == 0
    assert second.wait_for_end(10) == 0


@pytest.mark.parametrize(
    ("variables", "arguments", "words"),
    [
        ({"RANK": "0"}, (), "WORLD_SIZE is not"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, (), "RANK is 2, not between 0 and 1"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "29511"}, ("--tp", "4"),
         "--tp is 4, but WORLD_SIZE is 2"),
    ],
)  # fmt: skip
def test_variables_that_make_no_sense_are_named(minisgl_binary, variables, arguments, words):
    result = generate(
        minisgl_binary, tiny_model("llama"), "--prompt", "x", *arguments,
        env={**os.environ, **variables},
    )  # fmt: skip
    assert result.returncode == 1
    assert words in result.stderr


def test_ranks_that_do_not_come_are_named(minisgl_binary):
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": str(free_port())}
    result = generate(
        minisgl_binary, tiny_model("llama"), "--prompt", "x", "--distributed-timeout", "1",
        env={**os.environ, **place},
    )  # fmt: skip
    assert result.returncode == 1
    assert "ranks that have not come: 1 (after 1 s" in result.stderr


def test_each_rank_reads_its_share_alone(run_server, tmp_path):
    layers = int(os.environ.get("MINISGL_TEST_LARGE_LAYERS", "2"))
    size = write_large_model(tmp_path / "large", layers)
    peaks = {}
    for ranks in (1, 2):
        server = run_server(tmp_path / "large", "--tp", ranks, "--num-pages", 64,
                            "--max-running-requests", 1).wait_until_ready()  # fmt: skip
        peaks[ranks] = [peak_bytes(pid) for pid in (server.process.pid, *server.ranks)]
        assert server.stop() == 0
    print(f"{size / 1e9:.2f} GB: {peaks}")
    assert peaks[1][0] > size  # or it was not read
    assert max(peaks[2]) <= 0.6 * peaks[1][0]


@contextlib.contextmanager
def two_hosts():
    """Names of two network namespaces that a cable joins: 10.88.7.1 and 10.88.7.2."""
    names = [f"minisgl-{os.getpid()}-{side}" for side in "ab"]
    cables = [f"mg{os.getpid() % 10**9}{side}" for side in "ab"]

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", cables[0], "type", "veth", "peer", "name", cables[1])
        for side, (name, cable) in enumerate(zip(names, cables, strict=True)):
            ip("link", "set", cable, "netns", name)
            ip("-n", name, "addr", "add", f"10.88.7.{side + 1}/24", "dev", cable)
            ip("-n", name, "link", "set", cable, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names, cables
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


CLIENT = """
import http.client, json, sys, threading
port, count = int(sys.argv[1]), int(sys.argv[2])
statuses = []
def ask(index):
    body = {"prompt": [1 + index % 50, 2, 3], "max_tokens": 8, "ignore_eos": True}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(body))
    reply = connection.getresponse()
    statuses.append((reply.status, json.loads(reply.read())["usage"]["completion_tokens"]))
threads = [threading.Thread(target=ask, args=(i,)) for i in range(count)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert statuses == [(200, 8)] * count, statuses
"""

STREAM = """
import http.client, json, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
body = {"prompt": [1, 2, 3], "max_tokens": 20000, "ignore_eos": True, "stream": True}
connection.request("POST", "/v1/completions", json.dumps(body))
reply = connection.getresponse()
print(reply.read1(100).decode(), flush=True)
print(reply.read().decode(), flush=True)
"""


def can_make_hosts() -> bool:
    try:
        with two_hosts():
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@pytest.mark.skipif(not can_make_hosts(), reason="network namespaces need root and iproute2")
def test_two_hosts_serve_together_until_their_cable_is_cut(run_server, patient_model):
    with two_hosts() as (names, cables):
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "10.88.7.1", "MASTER_PORT": "29500"}
        arguments = ("--distributed-timeout", "3", "--num-pages", "32768")
        second, first = (
            run_server(patient_model, *arguments, env={**place, "RANK": str(rank)},
                       before=["ip", "netns", "exec", names[rank]])
            for rank in (1, 0)
        )  # fmt: skip
        first.wait_until_ready()
        inside = ["ip", "netns", "exec", names[0], sys.executable, "-c"]
        subprocess.run([*inside, CLIENT, str(first.port), "100"], check=True, timeout=60)

        stream = subprocess.Popen(
            [*inside, STREAM, str(first.port)], stdout=subprocess.PIPE, text=True
        )
        assert "data:" in stream.stdout.readline()
        begin = time.monotonic()
        subprocess.run(["ip", "-n", names[1], "link", "set", cables[1], "down"], check=True)
        text, _ = stream.communicate(timeout=15)
        assert time.monotonic() - begin < 10
        assert text.count('"error"') == 1
        assert "rank 1 did not answer within 3 s" in text
        assert first.wait_for_end(10) == 1
        assert second.wait_for_end(10) == 1


def test_nothing_of_ranks_is_left_in_a_server_with_one(run_server):
    server = run_server(tiny_model("qwen3")).wait_until_ready()
    assert "gloo" not in pathlib.Path(f"/proc/{server.process.pid}/maps").read_text()
    assert server.ranks == []
    assert is_alive(server.process.pid)
    wait_until(lambda: server.stop() == 0, 10, "stopping")
