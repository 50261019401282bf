"""What operators rely on: settings, keys, TLS, logs, draining."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

import pytest
from http_tools import ask, chat, health, open_request, port_in_log, read_until, wait_until

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHAT = "/v1/chat/completions"
LONG = {
    "messages": [{"role": "user", "content": "Count to one thousand."}],
    "max_tokens": 1500,
    "ignore_eos": True,
    "stream": True,
}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Paths of a certificate for localhost, made for this run, and of its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-keyout", key, "-out", cert,
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


# --- Settings ---


@pytest.fixture
def started(minisgl_binary, sample_model):
    """started(*arguments, env={}) runs serve until it is ready; returns its log."""

    def run(*arguments, env=None):
        process = subprocess.Popen(
            [minisgl_binary, "serve", *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, **(env or {})},
        )  # fmt: skip
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "Ready:" in line:
                break
        process.terminate()
        process.communicate(timeout=20)
        return "".join(lines)

    return run


def test_settings_come_from_flags_then_environment_then_file(started, sample_model, tmp_path):
    config = tmp_path / "minisgl.toml"
    config.write_text(
        f'model = "{sample_model}"\n'
        "port = 0\n"
        "page_size = 16        # underscores do as well\n"
        "num-pages = 100\n"
        "no-overlap = true\n"
        "[serve]\n"
        "max-running-requests = 7\n"
        "[pull]\n"
        'model-source = "modelscope"\n'
    )
    log = started(
        "--config", config, "--num-pages", "50",
        env={"MINISGL_PAGE_SIZE": "8", "MINISGL_NUM_PAGES": "60"},
    )  # fmt: skip
    assert "50 pages of 8 tokens" in log
    assert "7 requests at once" in log
    assert "overlap off" in log
    assert "4 pages of 16 tokens" in started(
        "--num-pages", "4", env={"MINISGL_CONFIG": str(config), "MINISGL_NO_OVERLAP": "false"}
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("prot = 80", 'there is no setting "prot"'),
        ("port = ", "line 1 is not TOML"),
        ("[sevre]\nport = 1", 'there is no command "sevre"'),
        ("port = 1979-05-27", '"port" is neither text'),
        ('config = "x"', 'there is no setting "config"'),
        ("max-running-requests = 0", "--max-running-requests"),
    ],
)
def test_a_wrong_setting_in_the_file_is_named(minisgl_binary, tmp_path, text, complaint):
    config = tmp_path / "minisgl.toml"
    config.write_text(text)
    done = subprocess.run(
        [minisgl_binary, "serve", "--config", config, "--model", "x"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode in (1, 2)
    (line,) = done.stderr.splitlines()
    assert complaint in line


def test_spellings_of_mini_sglang_are_understood(started, sample_model):
    log = started(
        "--model-path", sample_model, "--port", "0", "--tp", "1", "--tokenizer-count", "3",
        "--cache", "naive", "--attn", "fa", "--graph", "2", "--max-extend-length", "64",
        "--disable-pynccl", "--moe-backend", "fused", "--num-pages", "64",
    )  # fmt: skip
    assert "naive prefix cache" in log
    assert "steps of 64 tokens" in log


# --- Access ---


def test_keys_may_come_from_a_file_and_the_environment(minisgl_binary, start_server, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-one\n\n  sk-two  \n")
    server = start_server("--api-key-file", str(keys), "--api-key", "sk-three")
    for key, status in [("sk-one", 200), ("sk-two", 200), ("sk-three", 200), ("sk-four", 401)]:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})
            assert connection.getresponse().status == status
    assert ask(server.port, "GET", "/v1/models").error["code"] == "invalid_api_key"
    assert ask(server.port, "GET", "/metrics").status == 200
    assert "sk-" not in server.log(), "keys stay out of the log"
    server.stop()


# --- TLS ---


def tls_connection(port: int, certificate) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cafile=certificate)
    return http.client.HTTPSConnection("localhost", port, timeout=60, context=context)


@pytest.fixture(scope="module")
def tls_server(minisgl_binary, sample_model, certificate):
    cert, key = certificate
    process = subprocess.Popen(
        [minisgl_binary, "serve", "--model", sample_model, "--port", "0",
         "--tls-cert", cert, "--tls-key", key],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    yield port_in_log(process)
    process.terminate()
    assert process.wait(timeout=20) == 0


def test_tls_serves_answers_streams_and_many_requests_on_a_connection(tls_server, certificate):
    with contextlib.closing(tls_connection(tls_server, certificate[0])) as connection:
        for i in range(20):
            body = {**LONG, "max_tokens": 8, "stream": i % 2 == 0}
            connection.request("POST", CHAT, json.dumps(body))
            reply = connection.getresponse()
            assert reply.status == 200
            text = reply.read().decode()
            assert text.endswith("data: [DONE]\n\n") == body["stream"]
        connection.request("POST", CHAT, b" " * 2_000_000)
        reply = connection.getresponse()
        assert reply.status == 400
        reply.read()
        assert connection.sock.version() in ("TLSv1.2", "TLSv1.3")


def test_tls_clients_that_leave_abort_their_answers(tls_server, certificate):
    with contextlib.closing(tls_connection(tls_server, certificate[0])) as asking:

        def running() -> int:
            asking.request("GET", "/health")
            return json.loads(asking.getresponse().read())["running"]

        for stream in (True, False):
            leaving = tls_connection(tls_server, certificate[0])
            leaving.request("POST", CHAT, json.dumps({**LONG, "stream": stream}))
            wait_until(lambda: running() == 1, 5, "starting")
            leaving.close()
            wait_until(lambda: running() == 0, 3, "noticing that the client left")


def test_a_tls_port_survives_those_who_speak_something_else(tls_server, certificate):
    with socket.create_connection(("127.0.0.1", tls_server), timeout=10) as plain:
        plain.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        data = read_until(plain, b"\0")
        assert b"HTTP/1.1 200" not in data
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.verify_mode = ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", tls_server), timeout=10) as raw,
        pytest.raises((ssl.SSLError, ConnectionResetError)),
    ):
        old.wrap_socket(raw)
    with contextlib.closing(tls_connection(tls_server, certificate[0])) as connection:
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200


# --- Logs ---


def test_every_line_of_a_json_log_is_json_and_requests_have_their_fields(start_server):
    server = start_server("--log-format", "json")
    reply = chat(server.port, max_tokens=3, ignore_eos=True)
    ask(server.port, "GET", "/v1/models/nothing?secret=1")
    wait_until(lambda: "/v1/models/nothing" in server.log(), 5, "logging")
    lines = [json.loads(line) for line in server.log().splitlines()]
    assert all({"time", "level", "message"} <= set(line) for line in lines)
    (line,) = [li for li in lines if li.get("path") == CHAT]
    assert line["request_id"] == reply.headers["X-Request-Id"]
    assert line["status"] == 200
    assert line["completion_tokens"] == 3
    assert line["prompt_tokens"] == reply.json["usage"]["prompt_tokens"]
    assert 0 < line["duration_seconds"] < 60
    assert line["client"] == "127.0.0.1"
    (line,) = [li for li in lines if li.get("path") == "/v1/models/nothing"]
    assert line["status"] == 404
    assert "secret" not in server.log()
    server.stop()


# --- Ends ---


def test_a_server_that_drains_says_so(start_server):
    server = start_server("--drain-timeout", "20")
    stream = open_request(server.port, CHAT, {**LONG, "max_tokens": 150})
    with contextlib.closing(stream):
        received = read_until(stream, b"\n\n")
        server.process.send_signal(signal.SIGTERM)
        wait_until(
            lambda: ask(server.port, "GET", "/health").status == 503, 5, "noticing the signal"
        )
        assert health(server.port)["status"] == "draining"
        reply = chat(server.port, "hi", max_tokens=1)
        assert reply.status == 503
        assert reply.headers["Retry-After"]
        received += read_until(stream, b"\0")
        assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert b'"finish_reason":"length"' in received
    assert server.process.wait(timeout=10) == 0


def test_the_deadline_for_draining_is_a_setting(start_server):
    server = start_server("--drain-timeout", "0.2")
    stream = open_request(server.port, CHAT, LONG)
    with contextlib.closing(stream):
        received = read_until(stream, b"\n\n")
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        received += read_until(stream, b"\0")
        assert b"the server is shutting down" in received
        assert server.process.wait(timeout=10) == 0
        assert time.monotonic() - begin < 4


# --- Files for operators ---


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not there")
def test_the_systemd_unit_is_in_order(minisgl_binary, tmp_path):
    unit = (ROOT / "deploy" / "minisgl.service").read_text()
    assert "ExecStart=/usr/bin/minisgl serve " in unit
    installed = tmp_path / "minisgl.service"
    installed.write_text(unit.replace("/usr/bin/minisgl", str(minisgl_binary)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", installed],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "minisgl.service" not in done.stderr


def test_the_container_installs_what_the_build_needs():
    """The list of packages for a build is kept in scripts/packages.sh; the image needs all of it."""
    table = (ROOT / "scripts" / "packages.sh").read_text().split("PACKAGE_TABLE='")[1].split("'")[0]
    needed = {line.split()[0] for line in table.splitlines() if line.strip()}
    needed -= {"ccache", "libgtest-dev", "libgmock-dev"}  # tests and comfort
    build_stage = (ROOT / "deploy" / "Containerfile").read_text().split("\nFROM ")[1]
    assert needed <= set(build_stage.replace("\\", " ").split())


def installed_with(packages: set[str]) -> set[str]:
    """`packages` and all that they depend on, as far as it is installed here."""
    found: set[str] = set()
    todo = list(packages)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        depends = subprocess.run(
            ["dpkg-query", "--show", "--showformat=${Depends},${Pre-Depends}", name],
            capture_output=True, text=True, check=False,
        ).stdout  # fmt: skip
        todo += re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9.+-]+)", depends)
    return found


@pytest.mark.skipif(
    "bookworm" not in pathlib.Path("/etc/os-release").read_text(), reason="this is not Debian 12"
)
def test_the_container_installs_what_the_program_needs(minisgl_binary):
    last_stage = (ROOT / "deploy" / "Containerfile").read_text().split("\nFROM ")[-1]
    install = last_stage.split("--no-install-recommends")[1].split("&&")[0]
    there = installed_with(set(install.replace("\\", " ").split()))
    libraries = subprocess.run(["ldd", minisgl_binary], capture_output=True, text=True, check=True)
    for path in re.findall(r"=> (/\S+)", libraries.stdout):
        name = pathlib.Path(path).resolve().name  # packages may say /lib for /usr/lib
        owners = subprocess.run(
            ["dpkg", "--search", f"*/{name}"], capture_output=True, text=True, check=True
        ).stdout
        assert {line.split(":")[0] for line in owners.splitlines()} & there, path


def test_streams_some_of_which_leave(start_server):
    server = start_server()
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "stress_streams.py", server.url,
         "--streams", "60", "--seconds", "6", "--leave", "0.3", "--max-tokens", "12"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    summary = done.stdout.splitlines()[-1]
    assert "wrong {}" in summary, done.stdout
    assert "pages missing: 0" in summary
    # Six seconds are too short to judge memory by.
    server.stop()


@pytest.mark.parametrize(
    ("interpreter", "needed", "name"),
    [
        ("bash", "curl", "chat.sh"),
        (sys.executable, sys.executable, "chat.py"),
        ("node", "node", "chat.mjs"),
    ],
)
def test_the_examples_work(interpreter, needed, name, server):
    if shutil.which(needed) is None:
        pytest.skip(f"{needed} is not there")
    done = subprocess.run(
        [interpreter, ROOT / "examples" / name, f"{server.url}/v1"],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "no_proxy": "*"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 5
