"""A server that plays the Hugging Face hub, ModelScope and the host that hubs redirect large files
to, with the faults of each: what the tests of `minisgl pull` talk to."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
import urllib.parse
from dataclasses import dataclass, field


def git_hash(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Faults:
    """What goes wrong, by path of the file; "" is the listing."""

    cut_after: dict[str, list[int]] = field(default_factory=dict)  # bytes sent, one for each reply
    statuses: dict[str, list[int]] = field(default_factory=dict)  # instead of the next replies
    headers: dict[str, str] = field(default_factory=dict)  # of those replies
    wrong_contents: dict[str, bytes] = field(default_factory=dict)
    no_ranges: bool = False
    slow: bool = False  # a piece every 50 ms


@dataclass
class Seen:
    """One request."""

    host: str  # "hub" or "cdn"
    path: str
    token: str | None
    range: str | None


class Repo:
    """A model: {path: contents}. Files of 1000 bytes and more are in LFS."""

    def __init__(self, files: dict[str, bytes], *, gated: bool = False, private: bool = False):
        self.files = files
        self.gated = gated
        self.private = private
        self.commit = git_hash(repr(sorted(files.items())).encode())
        self.revisions = {"main", "master", "v1/x", self.commit}

    def listing(self, sizes: dict[str, int]) -> dict:
        siblings = []
        for path, data in self.files.items():
            entry = {
                "rfilename": path,
                "size": sizes.get(path, len(data)),
                "blobId": git_hash(data),
            }
            if len(data) >= 1000:
                entry["lfs"] = {"sha256": sha256(data), "size": entry["size"], "pointerSize": 130}
            siblings.append(entry)
        return {"id": "?", "sha": self.commit, "siblings": siblings}


class HubServer:
    """Use as a context manager. `url` is the hub, `cdn_url` the other host."""

    def __init__(self):
        self.repos: dict[str, Repo] = {}
        self.token: str | None = None  # what a private or gated repository wants
        self.faults = Faults()
        self.sizes: dict[str, int] = {}  # wrong sizes in the listing
        self.seen: list[Seen] = []
        self._servers = []

    def __enter__(self) -> HubServer:
        for host in ("hub", "cdn"):
            handler = type("Handler", (_Handler,), {"hub": self, "host": host})
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self._servers.append(server)
        return self

    def __exit__(self, *_) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._servers[0].server_address[1]}"

    @property
    def cdn_url(self) -> str:
        return f"http://127.0.0.1:{self._servers[1].server_address[1]}"

    def fetched(self, host: str = "cdn") -> list[str]:
        """Paths of the requests to a host."""
        return [seen.path for seen in self.seen if seen.host == host]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HubServer
    host: str

    def log_message(self, *_) -> None:
        pass

    def do_HEAD(self) -> None:
        """What the hub's own package asks for before it fetches."""
        self.do_GET()

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        bearer = self.headers.get("Authorization", "")
        token = bearer.removeprefix("Bearer ") if bearer.startswith("Bearer ") else None
        self.hub.seen.append(Seen(self.host, path, token, self.headers.get("Range")))
        if self.host == "cdn":
            repo, _, name = path.lstrip("/").partition("//")
            self.send_file(self.hub.repos[repo], name)
            return
        if path.startswith("/api/v1/models/"):
            self.modelscope(path.removeprefix("/api/v1/models/"), query)
            return
        if path.startswith("/api/models/"):
            rest = path.removeprefix("/api/models/")
            if "/tree/" in rest:
                self.tree(rest.partition("/tree/")[0], token)
                return
            repo, _, revision = rest.partition("/revision/")
            self.listing(repo, revision, token)
            return
        repo, _, rest = path.lstrip("/").partition("/resolve/")
        revision, _, name = rest.partition("/")
        self.resolve(repo, revision, name, token)

    # The Hugging Face hub

    def allowed(self, name: str, token: str | None) -> Repo | None:
        """The repository, or None after an error was sent, as the hub sends them."""
        repo = self.hub.repos.get(name)
        known = token is not None and token == self.hub.token
        if repo is None or (repo.private and not known):
            # Without a token the hub does not tell a private model from none.
            self.fail(404 if known else 401, "RepoNotFound")
            return None
        if repo.gated and not known:
            self.fail(401 if token is None else 403, "GatedRepo")
            return None
        return repo

    def listing(self, name: str, revision: str, token: str | None) -> None:
        if self.planned_fault(""):
            return
        # The hub lists a gated repository to everybody.
        repo = self.hub.repos.get(name)
        if repo is None or not repo.gated:
            repo = self.allowed(name, token)
        if repo is None:
            return
        if revision not in repo.revisions:
            self.fail(404, "RevisionNotFound")
            return
        self.send(200, json.dumps(repo.listing(self.hub.sizes)).encode())

    def tree(self, name: str, token: str | None) -> None:
        """The list of files that the hub's own package asks for."""
        repo = self.allowed(name, token)
        if repo is None:
            return
        entries = []
        for path, data in repo.files.items():
            entry = {"type": "file", "path": path, "size": len(data), "oid": git_hash(data)}
            if len(data) >= 1000:
                entry["lfs"] = {"oid": sha256(data), "size": len(data), "pointerSize": 130}
            entries.append(entry)
        self.send(200, json.dumps(entries).encode())

    def resolve(self, name: str, revision: str, path: str, token: str | None) -> None:
        repo = self.allowed(name, token)
        if repo is None:
            return
        if revision not in repo.revisions or path not in repo.files:
            self.fail(404, "EntryNotFound")
            return
        data = repo.files[path]
        if self.command == "HEAD" and len(data) < 1000:
            self.send(200, data, X_Repo_Commit=repo.commit, ETag=f'"{git_hash(data)}"')
            return
        if len(data) < 1000:
            self.send_file(repo, path)
            return
        self.send(
            302, b"", X_Repo_Commit=repo.commit, X_Linked_ETag=f'"{sha256(data)}"',
            X_Linked_Size=str(len(data)),
            Location=f"{self.hub.cdn_url}/{name}//{urllib.parse.quote(path)}?sig=1",
        )  # fmt: skip

    # ModelScope

    def modelscope(self, rest: str, query: dict[str, str]) -> None:
        name, _, what = rest.partition("/repo")
        repo = self.hub.repos.get(name)
        if repo is None or query.get("Revision") not in repo.revisions:
            self.send(404, json.dumps({"Code": 10010205001, "Message": "none"}).encode())
            return
        if what == "/files":
            entries = [{"Name": "sub", "Path": "sub", "Type": "tree", "Size": 0, "Sha256": ""}]
            entries += [
                {"Name": path.rsplit("/")[-1], "Path": path, "Type": "blob", "Size": len(data),
                 "Sha256": sha256(data), "IsLFS": len(data) >= 1000}
                for path, data in repo.files.items()
            ]  # fmt: skip
            self.send(200, json.dumps({"Code": 200, "Data": {"Files": entries}}).encode())
            return
        self.send_file(repo, query["FilePath"])

    # Files and faults

    def planned_fault(self, path: str) -> bool:
        statuses = self.hub.faults.statuses.get(path)
        if not statuses:
            return False
        self.send(statuses.pop(0), b"fault", **self.hub.faults.headers)
        return True

    def send_file(self, repo: Repo, path: str) -> None:
        if self.planned_fault(path):
            return
        faults = self.hub.faults
        data = faults.wrong_contents.get(path, repo.files[path])
        begin = 0
        wanted = self.headers.get("Range")
        if wanted and not faults.no_ranges:
            begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
        if begin >= len(data) > 0:
            self.fail(416, "")
            return
        part = data[begin:]
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        cuts = faults.cut_after.get(path)
        cut = cuts.pop(0) if cuts else None
        self.write_body(part if cut is None else part[:cut])
        if cut is not None:
            self.close_connection = True

    def write_body(self, data: bytes) -> None:
        step = 20_000 if self.hub.faults.slow else len(data) or 1
        try:
            for begin in range(0, len(data), step):
                self.wfile.write(data[begin : begin + step])
                self.wfile.flush()
                if self.hub.faults.slow:
                    threading.Event().wait(0.05)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def fail(self, status: int, code: str) -> None:
        self.send(status, b"{}", **({"X-Error-Code": code} if code else {}))

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
