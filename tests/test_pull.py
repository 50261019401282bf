"""`minisgl pull` and names of models, against a server that plays the hubs."""

import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import time

import huggingface_hub
import pytest
from hub_server import HubServer, Repo, git_hash, sha256
from tiny_models import tiny_model

TINY = tiny_model("llama")
NAME = "org/tiny"
WEIGHTS = "model.safetensors"


def tiny_files() -> dict[str, bytes]:
    """A model that loads, and what must not be fetched."""
    names = ["config.json", "generation_config.json", WEIGHTS, "tokenizer.json"]
    files = {name: (TINY / name).read_bytes() for name in names}
    return files | {"README.md": b"# tiny", "pytorch_model.bin": bytes(5000), "onnx/m.onnx": b"x"}


@pytest.fixture
def hub():
    with HubServer() as server:
        server.repos[NAME] = Repo(tiny_files())
        yield server


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def environment(hub, cache, tmp_path):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING", "MODELSC"))}
    return clean | {
        "HF_ENDPOINT": hub.url, "HF_HUB_CACHE": str(cache), "HF_HOME": str(tmp_path / "home"),
        "MINISGL_PULL_RETRY_DELAY": "0.05", "NO_PROXY": "*",
    }  # fmt: skip


@pytest.fixture
def minisgl(minisgl_binary, environment):
    """minisgl(*arguments, env={...}) -> the ended process."""

    def run(*arguments, env=None, **more):
        return subprocess.run(
            [minisgl_binary, *map(str, arguments)], env=environment | (env or {}),
            capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
            **more,
        )  # fmt: skip

    return run


@pytest.fixture
def pull(minisgl):
    """pull(...) -> the folder of the snapshot, after a success."""

    def run(*arguments, **more):
        done = minisgl("pull", *arguments, **more)
        assert done.returncode == 0, done.stderr
        return pathlib.Path(done.stdout.rstrip("\n"))

    return run


@pytest.fixture
def fails(minisgl):
    """fails(...) -> the last line of complaint, after a failure."""

    def run(*arguments, **more):
        done = minisgl(*arguments, **more)
        assert done.returncode == 1, done.stderr
        assert done.stdout == ""
        line = done.stderr.splitlines()[-1]
        assert line.startswith("minisgl: ")
        return line

    return run


def blobs(cache: pathlib.Path, name: str = NAME) -> set[str]:
    folder = cache / ("models--" + name.replace("/", "--")) / "blobs"
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def unfinished(hub: HubServer) -> str:
    """What the weights are called while they come."""
    return sha256(hub.repos[NAME].files[WEIGHTS]) + ".incomplete"


# The whole, and its layout


def test_a_model_is_fetched_whole_and_nothing_else(pull, hub, cache):
    folder = pull(NAME)
    repo = hub.repos[NAME]
    wanted = {"config.json", "generation_config.json", WEIGHTS, "tokenizer.json"}
    assert {p.name for p in folder.iterdir()} == wanted
    for name in wanted:
        assert (folder / name).read_bytes() == repo.files[name]
        assert (folder / name).is_symlink()
    model = cache / "models--org--tiny"
    assert folder == model / "snapshots" / repo.commit
    assert (model / "refs" / "main").read_text() == repo.commit
    hashes = {n: sha256(d) if len(d) >= 1000 else git_hash(d) for n, d in repo.files.items()}
    assert blobs(cache) == {hashes[name] for name in wanted}


def test_the_hub_s_own_package_finds_it_and_we_find_what_that_made(pull, cache, minisgl):
    folder = pull(NAME)
    found = huggingface_hub.snapshot_download(NAME, cache_dir=cache, local_files_only=True)
    assert pathlib.Path(found) == folder
    file = huggingface_hub.try_to_load_from_cache(NAME, "config.json", cache_dir=cache)
    assert pathlib.Path(file) == folder / "config.json"
    scan = huggingface_hub.scan_cache_dir(cache)
    assert [repo.repo_id for repo in scan.repos] == [NAME]
    assert not scan.warnings


def test_what_the_hub_s_own_package_fetched_is_complete_for_us(hub, cache, environment, minisgl):
    code = f"import huggingface_hub as h; print(h.snapshot_download({NAME!r}))"
    subprocess.run([sys.executable, "-c", code], env=environment, timeout=120, check=True)
    hub.seen.clear()
    again = minisgl("pull", NAME)
    assert again.returncode == 0, again.stderr
    assert "is complete" in again.stderr
    assert hub.fetched() == []


def test_a_second_pull_fetches_nothing(pull, minisgl, hub):
    pull(NAME)
    hub.seen.clear()
    done = minisgl("pull", NAME)
    assert done.returncode == 0
    assert "org/tiny is complete: 4 files" in done.stderr
    assert hub.fetched() == []
    assert len(hub.fetched("hub")) == 1, "the listing"


def test_a_new_commit_fetches_what_changed(pull, hub, cache):
    old = pull(NAME)
    files = tiny_files() | {"config.json": (TINY / "config.json").read_bytes() + b"\n"}
    hub.repos[NAME] = Repo(files)
    hub.seen.clear()
    new = pull(NAME)
    assert new != old
    assert hub.fetched() == [], "the weights are the same"
    assert [p for p in hub.fetched("hub") if "/resolve/" in p][0].endswith("config.json")
    assert (cache / "models--org--tiny/refs/main").read_text() == hub.repos[NAME].commit
    assert (old / "config.json").read_bytes() != (new / "config.json").read_bytes()


def test_the_model_runs_under_its_name(pull, minisgl):
    folder = pull(NAME)
    by_name = minisgl("tokenize", "--model", NAME, input=None)
    by_path = minisgl("tokenize", "--model", folder)
    assert by_name.returncode == 0, by_name.stderr
    assert by_name.stdout == by_path.stdout
    scored = minisgl(
        "perplexity", "--model", NAME, "--file", TINY / "generation_config.json", "--threads", 1
    )
    assert scored.returncode == 0, scored.stderr
    assert json.loads(scored.stdout)["tokens"] > 10


def test_a_revision_is_fetched_and_found(pull, hub, cache, minisgl):
    folder = pull(NAME, "--revision", "v1/x")
    assert (cache / "models--org--tiny/refs/v1/x").read_text() == folder.name
    assert minisgl("tokenize", "--model", f"{NAME}@v1/x").returncode == 0


def test_patterns_choose_other_files(pull, hub):
    folder = pull(NAME, "--include", "*.md", "--include", "onnx/*")
    assert {str(p.relative_to(folder)) for p in folder.rglob("*.*")} == {"README.md", "onnx/m.onnx"}


# GGUF repositories


@pytest.fixture
def quants(hub, sample_model):
    data = sample_model.read_bytes()[:3000]
    names = ["t-Q4_K.gguf", "t-Q4_K_M.gguf", "t-Q8_0.gguf", "mmproj-t.gguf"]
    hub.repos["org/t-GGUF"] = Repo({name: data + name.encode() for name in names})


def test_a_quantisation_is_fetched_and_found_in_any_case(quants, pull, hub, minisgl):
    folder = pull("org/t-GGUF:q4_k_m")
    assert [p.name for p in folder.iterdir()] == ["t-Q4_K_M.gguf"]
    done = minisgl("tokenize", "--model", "org/t-GGUF:Q4_K_M")
    assert "t-Q4_K_M.gguf" in done.stderr, "found, and refused for being cut"


def test_an_unclear_name_lists_what_there_is(quants, fails):
    line = fails("pull", "org/t-GGUF")
    assert "several GGUF files: t-Q4_K.gguf, t-Q4_K_M.gguf, t-Q8_0.gguf" in line
    assert "org/t-GGUF:t-Q4_K.gguf" in line
    assert "no GGUF file 'Q2_K'" in fails("pull", "org/t-GGUF:Q2_K")


# Connections that break


def test_a_cut_connection_goes_on_where_it_broke(pull, hub):
    hub.faults.cut_after[WEIGHTS] = [300_000, 200_000]
    folder = pull(NAME)
    assert (folder / WEIGHTS).read_bytes() == hub.repos[NAME].files[WEIGHTS]
    ranges = [s.range for s in hub.seen if s.host == "cdn" and s.path.endswith(WEIGHTS)]
    assert ranges == [None, "bytes=300000-", "bytes=500000-"]


def test_a_server_without_ranges_sends_it_again(pull, hub):
    hub.faults.cut_after[WEIGHTS] = [300_000]
    hub.faults.no_ranges = True
    folder = pull(NAME)
    assert (folder / WEIGHTS).read_bytes() == hub.repos[NAME].files[WEIGHTS]


def test_it_gives_up_in_the_end_and_keeps_what_came(fails, pull, hub, cache):
    hub.faults.cut_after[WEIGHTS] = [400_000] + [0] * 20
    line = fails("pull", NAME)
    assert WEIGHTS in line
    assert "5 times; what came so far is kept" in line
    assert unfinished(hub) in blobs(cache)
    assert "is not complete in the cache" in fails("tokenize", "--model", NAME)
    hub.faults.cut_after.clear()
    hub.seen.clear()
    folder = pull(NAME)
    assert (folder / WEIGHTS).read_bytes() == hub.repos[NAME].files[WEIGHTS]
    assert [s.range for s in hub.seen if s.host == "cdn" and WEIGHTS in s.path] == ["bytes=400000-"]
    assert not [name for name in blobs(cache) if name.endswith(".incomplete")]


@pytest.mark.parametrize("path", ["", "config.json", WEIGHTS])
def test_busy_servers_are_asked_again(pull, minisgl, hub, path):
    hub.faults.statuses[path] = [503, 429, 500]
    hub.faults.headers = {"Retry_After": "0"}
    done = minisgl("pull", NAME)
    assert done.returncode == 0, done.stderr
    assert "HTTP status 503; again in 0 s" in done.stderr


def test_no_server_at_all(fails):
    line = fails("pull", NAME, env={"HF_ENDPOINT": "http://127.0.0.1:9"})
    assert "127.0.0.1" in line
    assert "connect" in line.lower()


def test_ctrl_c_leaves_what_the_next_pull_goes_on_from(
    minisgl_binary, environment, hub, cache, pull
):
    hub.faults.slow = True
    process = subprocess.Popen(
        [minisgl_binary, "pull", NAME], env=environment, stderr=subprocess.PIPE, text=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    part = cache / "models--org--tiny/blobs" / unfinished(hub)
    end = time.monotonic() + 30
    while not (part.exists() and part.stat().st_size > 100_000):
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, text = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "The same command goes on from here" in text
    assert part.stat().st_size >= 100_000
    hub.faults.slow = False
    hub.seen.clear()
    pull(NAME)
    (again,) = [s.range for s in hub.seen if s.host == "cdn" and WEIGHTS in s.path]
    assert int(again.removeprefix("bytes=").removesuffix("-")) >= 100_000


# Damage


@pytest.mark.parametrize(
    ("path", "kind"), [(WEIGHTS, "SHA-256"), ("generation_config.json", "git hash (SHA-1)")]
)
def test_a_wrong_hash_removes_the_file_and_says_so(fails, pull, hub, cache, path, kind):
    data = bytearray(hub.repos[NAME].files[path])
    data[len(data) // 2] ^= 1
    hub.faults.wrong_contents[path] = bytes(data)
    line = fails("pull", NAME)
    assert f"{path} is damaged: its {kind} is " in line
    assert "it was removed: pull again" in line
    assert not [name for name in blobs(cache) if name.endswith(".incomplete")]
    hub.faults.wrong_contents.clear()
    assert (pull(NAME) / path).read_bytes() == hub.repos[NAME].files[path]


def test_damage_in_the_part_that_was_there_is_found(fails, pull, hub, cache):
    part = cache / "models--org--tiny/blobs" / unfinished(hub)
    part.parent.mkdir(parents=True)
    part.write_bytes(random.Random(1).randbytes(1000))
    assert "is damaged" in fails("pull", NAME)
    pull(NAME)


def test_more_bytes_than_the_hub_tells(fails, hub):
    hub.faults.wrong_contents[WEIGHTS] = hub.repos[NAME].files[WEIGHTS] + b"x"
    assert "has more bytes than the" in fails("pull", NAME)


def test_a_path_that_leads_out_of_the_cache_is_never_written(pull, hub, tmp_path):
    hub.repos[NAME].files["../../../../escaped.json"] = b"{}"
    hub.repos[NAME].files["/escaped.json"] = b"{}"
    pull(NAME, "--include", "*.json")
    assert not list(tmp_path.rglob("escaped.json"))


def test_too_little_room_is_seen_before_the_first_byte(fails, hub, cache):
    hub.sizes[WEIGHTS] = 10**18
    line = fails("pull", NAME)
    assert "not enough room" in line
    assert "1000000000.0 GB are needed" in line
    assert not cache.exists()


def test_a_disk_that_is_full_keeps_what_came(minisgl, hub, cache):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))

    done = minisgl("pull", NAME, preexec_fn=limit)
    assert done.returncode == 1
    assert "make room and pull again" in done.stderr
    (part,) = [name for name in blobs(cache) if name.endswith(".incomplete")]
    assert (cache / "models--org--tiny/blobs" / part).stat().st_size == 500_000


# Access


def test_the_token_goes_to_the_hub_and_to_no_other_host(pull, hub):
    hub.token = "hf_secret"
    hub.repos[NAME].private = True
    pull(NAME, env={"HF_TOKEN": "hf_secret"})
    assert {s.token for s in hub.seen if s.host == "hub"} == {"hf_secret"}
    assert {s.token for s in hub.seen if s.host == "cdn"} == {None}
    assert hub.fetched() != []


@pytest.mark.parametrize("place", ["HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "home"])
def test_other_places_of_a_token(pull, hub, tmp_path, place):
    hub.token = "hf_secret"
    hub.repos[NAME].private = True
    file = tmp_path / ("home/token" if place == "home" else "my-token")
    file.parent.mkdir(exist_ok=True)
    file.write_text("hf_secret\n")
    values = {"HUGGING_FACE_HUB_TOKEN": "hf_secret", "HF_TOKEN_PATH": str(file)}
    if place != "home":
        (tmp_path / "home").mkdir(exist_ok=True)
    pull(NAME, env={place: values[place]} if place != "home" else None)


def test_a_private_or_unknown_model(fails, hub):
    line = fails("pull", "org/none")
    assert "there is no public model" in line
    assert "HF_TOKEN" in line
    hub.token = "hf_secret"
    assert "there is no model" in fails("pull", "org/none", env={"HF_TOKEN": "hf_secret"})
    assert "does not accept the access token" in fails(
        "pull", "org/none", env={"HF_TOKEN": "hf_wrong"}
    )


def test_a_gated_model_says_where_to_ask(fails, hub):
    hub.repos[NAME].gated = True
    hub.token = "hf_secret"
    line = fails("pull", NAME)
    assert f"is gated: ask for access at {hub.url}/{NAME}" in line
    assert "HF_TOKEN" in line
    line = fails("pull", NAME, env={"HF_TOKEN": "hf_other"})
    assert "the account of this token has no access yet" in line


def test_an_unknown_revision(fails):
    assert "has no revision at 'v9'" in fails("pull", NAME, "--revision", "v9")


def test_a_name_that_is_none(fails):
    assert "expected org/name" in fails("pull", "/some/path")


def test_offline_nothing_is_fetched(fails, pull, hub):
    offline = {"HF_HUB_OFFLINE": "1"}
    line = fails("pull", NAME, env=offline)
    assert "no such model is in the cache" in line
    assert "without HF_HUB_OFFLINE" in line
    assert hub.seen == []
    folder = pull(NAME)
    hub.seen.clear()
    assert pull(NAME, env=offline) == folder
    assert hub.seen == []


def test_a_model_that_is_not_there_says_how_to_get_it(fails, cache):
    line = fails("tokenize", "--model", NAME)
    assert f"to download it: minisgl pull {NAME}" in line
    assert str(cache) in line


# ModelScope


def test_modelscope(pull, hub, cache):
    environment = {"MODELSCOPE_DOMAIN": hub.url}
    folder = pull(NAME, "--model-source", "modelscope", env=environment)
    for name in ("config.json", WEIGHTS):
        assert (folder / name).read_bytes() == hub.repos[NAME].files[name]
    assert blobs(cache) >= {sha256(hub.repos[NAME].files["config.json"])}
    assert all(path.startswith("/api/v1/models/org/tiny/repo") for path in hub.fetched("hub"))
    hub.seen.clear()
    assert pull(NAME, "--model-source", "modelscope", env=environment) == folder
    assert len(hub.seen) == 1
    found = huggingface_hub.snapshot_download(NAME, cache_dir=cache, local_files_only=True)
    assert pathlib.Path(found) == folder


def test_modelscope_does_not_know_it(fails, hub):
    environment = {"MODELSCOPE_DOMAIN": hub.url}
    line = fails("pull", "org/none", "--model-source", "modelscope", env=environment)
    assert "there is no model" in line
    assert "no source of models 'ftp'" in fails("pull", NAME, "--model-source", "ftp")
