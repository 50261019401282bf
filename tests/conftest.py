"""What the end-to-end tests share: the binary, the sample model, a running server."""

import os
import pathlib
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import pytest

# Settings of whoever runs the tests are no part of them.
for name in list(os.environ):
    if name.startswith("MINISGL_") and not name.startswith(("MINISGL_BINARY", "MINISGL_TEST_")):
        del os.environ[name]

# Where the programs under test compute: MINISGL_TEST_DEVICE=cuda, with MINISGL_TEST_DETERMINISTIC=1
# for the tests that need it there. All of them read their flags from the environment as well.
for flag in ("DEVICE", "DETERMINISTIC"):
    if value := os.environ.get(f"MINISGL_TEST_{flag}"):
        os.environ[f"MINISGL_{flag}"] = value

ROOT = pathlib.Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(items):
    if not os.environ.get("MINISGL_DEVICE", "cpu").startswith("cuda"):
        return
    if os.environ.get("MINISGL_DETERMINISTIC", "0") in ("1", "true"):
        return
    reason = "on a GPU an answer depends on the others by rounding: set MINISGL_TEST_DETERMINISTIC"
    for item in items:
        if item.get_closest_marker("batch_independent"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def minisgl_binary() -> pathlib.Path:
    """The program under test: build/minisgl, or what MINISGL_BINARY names."""
    binary = pathlib.Path(os.environ.get("MINISGL_BINARY", ROOT / "build" / "minisgl"))
    assert binary.exists(), f"{binary} is not there: build it with ./scripts/test"
    return binary


@pytest.fixture(scope="session")
def sample_model() -> pathlib.Path:
    """SmolLM2-135M-Instruct as a GGUF file, or what MINISGL_TEST_MODEL names."""
    default = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    model = pathlib.Path(os.environ.get("MINISGL_TEST_MODEL", default))
    assert model.exists(), f"{model} is not there: ./scripts/test fetches it"
    return model


class Server:
    """A running `minisgl serve`. `url` ends without a slash; `log()` is what it wrote so far."""

    def __init__(self, binary: pathlib.Path, model: pathlib.Path, *arguments: str):
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (open as long as the server)
        self.process = subprocess.Popen(
            [binary, "serve", "--model", model, "--port", "0", *arguments],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        try:
            self.port = self._wait_for_port()
            self.url = f"http://127.0.0.1:{self.port}"
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise

    def log(self) -> str:
        # pread: the server writes through the same open file, whose position must not move.
        return os.pread(self._log.fileno(), 1 << 24, 0).decode(errors="replace")

    def stop(self) -> int:
        """Asks it to end (SIGTERM) and returns its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError(
                    "the server ignored SIGTERM for 20 s:\n" + self.log()
                ) from None
        return self.process.returncode

    def _wait_for_port(self, timeout_s: float = 60) -> int:
        """With --port 0 the system chooses a free port, so that tests may run side by side."""
        for _ in self._ticks(timeout_s, "said no port"):
            for port in self._listening_ports():
                return port
        raise AssertionError

    def _listening_ports(self) -> list[int]:
        """TCP ports on which the process listens, from /proc: no log format to rely on."""
        sockets = set()
        try:
            for fd in pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir():
                target = str(fd.readlink())
                if target.startswith("socket:["):
                    sockets.add(target[len("socket:[") : -1])
        except FileNotFoundError:
            return []
        ports = []
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:  # 0A: listening
                ports.append(int(fields[1].split(":")[1], 16))
        return ports

    def _wait_until_healthy(self, timeout_s: float = 120) -> None:
        for _ in self._ticks(timeout_s, "was not healthy"):
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5) as reply:
                    if reply.status == 200:
                        return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                pass

    def _ticks(self, timeout_s: float, complaint: str):
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(
                    f"the server ended with status {self.process.returncode}:\n{self.log()}"
                )
            yield
            time.sleep(0.02)
        raise AssertionError(f"the server {complaint} within {timeout_s:.0f} s:\n{self.log()}")


@pytest.fixture(scope="session")
def start_server(minisgl_binary, sample_model):
    """start_server(*arguments) -> Server of the sample model; all are ended after the tests."""
    servers = []

    def start(*arguments: str) -> Server:
        servers.append(Server(minisgl_binary, sample_model, *arguments))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def server(start_server) -> Server:
    """One server for all tests that need nothing special of it."""
    return start_server()
