#!/usr/bin/env python3
"""minisgl, Hugging Face tokenizers and tiktoken on the same 20 MB of text, one thread each.

    benchmarks/compare_tokenizers.py [--repeat N] [--json FILE] [--llama3] [FOLDER...]

FOLDER: what has a tokenizer.json or a tokenizer.json.xz; by default the byte-level vocabularies of
the tests. The text is made from one release of Django, fetched from the Python package index by its
hash: 10.6 MB of code, 7 MB of English prose (its manual), 2.4 MB of sentences in a hundred languages
(its translations). All ids must be equal. The three take turns in one run; each ratio is the median over
the turns, of processor time.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import datetime
import hashlib
import json
import lzma
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import unicodedata
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.append(str(ROOT / "tools"))

import llama3_vocabulary  # noqa: E402

WORKER = HERE / "tokenizers_worker.py"
REQUIREMENTS = HERE / "tokenizers_requirements.txt"
SOURCE = "django==5.2.19"
SOURCE_SHA256 = "ad03d8abc51dbff95ebf34b27123cf0c26a3b62db7ba0cd520783686362533d1"
LIBRARIES = ("tokenizers", "tiktoken")


@dataclasses.dataclass(frozen=True)
class Part:
    """A share of the corpus: files of these kinds, in an order that mixes folders."""

    name: str
    suffixes: tuple[str, ...]
    size_bytes: int


PARTS = (
    Part("code", (".py", ".js", ".html", ".css"), 10_600_000),
    Part("prose", (".txt",), 7_000_000),
    Part("languages", (".po",), 2_400_000),
)


def environment(folder: pathlib.Path) -> pathlib.Path:
    """The Python of an environment that has the libraries; makes it when needed."""
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"making {folder}", flush=True)
        venv.create(folder, with_pip=True)
    stamp = folder / "requirements.txt"
    if not stamp.exists() or stamp.read_text() != REQUIREMENTS.read_text():
        install = [python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r"]
        subprocess.run([*install, REQUIREMENTS], check=True)
        shutil.copy(REQUIREMENTS, stamp)
    return python


def fetch(python: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """The source archive, fetched once and checked."""
    archive = folder / f"{SOURCE.replace('==', '-')}.tar.gz"
    if not archive.exists():
        print(f"fetching {SOURCE}", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        pip = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*pip, "--dest", folder, SOURCE], check=True)
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SOURCE_SHA256:
        sys.exit(f"{archive} has the sha256 {found}; {SOURCE_SHA256} is expected")
    return archive


def translations(catalogue: str) -> str:
    """The translated sentences of a gettext catalogue, one a line."""
    sentences, current = [], None
    for line in catalogue.splitlines():
        if found := re.match(r"msgstr(?:\[\d+\])? (\".*\")$", line):
            current = [found[1]]
        elif current is not None and line.startswith('"'):
            current.append(line)
        elif current is not None:
            sentences.append("".join(ast.literal_eval(part) for part in current))
            current = None
    return "\n".join(s for s in sentences[1:] if s)  # the first is the file's header


def make_corpus(archive: pathlib.Path) -> tuple[list[str], list[dict]]:
    """Documents, and what each part is made of."""
    suffixes = {suffix for part in PARTS for suffix in part.suffixes}
    files = {}
    with tarfile.open(archive) as tar:
        for member in tar:  # in the archive's order: going back would unpack it from its beginning
            if member.isfile() and pathlib.PurePosixPath(member.name).suffix in suffixes:
                files[member.name] = tar.extractfile(member).read()
    documents, made_of = [], []
    for part in PARTS:
        names = [n for n in files if pathlib.PurePosixPath(n).suffix in part.suffixes]
        names.sort(key=lambda name: hashlib.sha256(name.encode()).digest())
        left, taken = part.size_bytes, 0
        for name in names:
            try:
                text = files[name].decode()
            except UnicodeDecodeError:
                continue
            if part.suffixes == (".po",):
                text = translations(text)
            # tiktoken does not normalise, Qwen's tokenizer does.
            text = unicodedata.normalize("NFC", text).replace("\0", "")
            text = text.encode()[:left].decode(errors="ignore")
            if text:
                documents.append(text)
                left -= len(text.encode())
                taken += 1
            if left < 4:  # what a character that does not fit may leave
                break
        made_of.append({"part": part.name, "files": taken, "bytes": part.size_bytes - left})
    return documents, made_of


class Side:
    """One tokenizer in a process of its own."""

    def __init__(self, name: str, command: list) -> None:
        self.name = name
        self.seconds: list[float] = []
        self.tokens = 0
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.expect("ready")

    def expect(self, word: str) -> None:
        reply = self.process.stdout.readline().strip()
        if reply != word:
            sys.exit(f'{self.name}: "{reply}" instead of "{word}"; see its message above')

    def send(self, command: str) -> None:
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def run_pass(self) -> None:
        self.send("pass")
        seconds, tokens = self.process.stdout.readline().split()
        self.seconds.append(float(seconds))
        self.tokens = int(tokens)

    def write_ids(self, path: pathlib.Path) -> None:
        self.send(f"ids {path}")
        self.expect("written")

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def unpack(folder: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
    """A folder with a plain tokenizer.json."""
    if (folder / "tokenizer.json").exists():
        return folder
    packed = folder / "tokenizer.json.xz"
    if not packed.exists():
        sys.exit(f"{folder} has neither a tokenizer.json nor a tokenizer.json.xz")
    target = to / folder.name
    target.mkdir(parents=True, exist_ok=True)
    (target / "tokenizer.json").write_bytes(lzma.decompress(packed.read_bytes()))
    return target


def write_corpus(documents: list[str], model: pathlib.Path, path: pathlib.Path) -> None:
    """Without the vocabulary's own added tokens: tiktoken would take them for plain text."""
    added = json.loads((model / "tokenizer.json").read_text())["added_tokens"]
    pattern = re.compile("|".join(re.escape(token["content"]) for token in added))
    path.write_text("".join(pattern.sub("", text) + "\0" for text in documents))


def compare(
    args: argparse.Namespace, python: pathlib.Path, documents: list[str], folder: pathlib.Path
) -> dict:
    corpus = args.work / "corpus"
    model = unpack(folder, args.work)
    write_corpus(documents, model, corpus)
    sides = [Side("minisgl", [args.binary, model, corpus])]
    sides += [Side(name, [python, WORKER, name, model, corpus]) for name in LIBRARIES]
    try:
        ids = []
        for side in sides:
            path = args.work / f"{side.name}.ids"
            side.write_ids(path)
            ids.append(hashlib.sha256(path.read_bytes()).hexdigest())
        equal = {side.name: one == ids[0] for side, one in zip(sides[1:], ids[1:], strict=True)}
        for turn in range(args.repeat):
            # The order changes, so that none always has the warmer machine.
            for side in sides if turn % 2 == 0 else reversed(sides):
                side.run_pass()
    finally:
        for side in sides:
            with contextlib.suppress(BrokenPipeError):
                side.close()
    size = corpus.stat().st_size
    ours, *theirs = (side.seconds for side in sides)
    faster = [min(turn) for turn in zip(*theirs, strict=True)]
    ratios = sorted(b / a for a, b in zip(ours, faster, strict=True))
    return {
        "tokenizer": folder.name,
        "tokens": sides[0].tokens,
        "ids_equal": equal,
        "mb_per_s": {s.name: size / 1e6 / statistics.median(s.seconds) for s in sides},
        "ratio_to_the_faster": statistics.median(ratios),
        "ratio_lowest": ratios[0],
        "ratio_highest": ratios[-1],
        "seconds": {side.name: side.seconds for side in sides},
    }


def processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def print_table(results: list[dict]) -> None:
    names = ("minisgl", *LIBRARIES)
    print(f"\n{'MB/s, median':16}" + "".join(f"{n:>12}" for n in names) + "   ratio to the faster")
    for r in results:
        rates = "".join(f"{r['mb_per_s'][name]:12.1f}" for name in names)
        spread = f"({r['ratio_lowest']:.2f} .. {r['ratio_highest']:.2f})"
        unequal = [name for name, same in r["ids_equal"].items() if not same]
        verdict = f"ids differ from {', '.join(unequal)}" if unequal else "ids equal"
        print(f"{r['tokenizer']:16}{rates}{r['ratio_to_the_faster']:8.2f} {spread}  {verdict}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = ROOT / "tests" / "data" / "tokenizers"
    default = [data / "qwen3", data / "smollm2"]
    parser.add_argument("folders", nargs="*", type=pathlib.Path, default=default, metavar="FOLDER")
    bench = ROOT / "build" / "benchmarks" / "tokenizer_bench"
    parser.add_argument("--binary", type=pathlib.Path, default=bench)
    parser.add_argument("--repeat", type=int, default=5, help="turns of all three")
    work = ROOT / ".cache" / "tokenizers"
    parser.add_argument("--work", type=pathlib.Path, default=work, help="where the files go")
    parser.add_argument(
        "--llama3", action="store_true", help="also with Llama 3's vocabulary, which is fetched"
    )
    parser.add_argument("--json", type=pathlib.Path, help="also write all figures to this file")
    args = parser.parse_args()
    args.work = args.work.resolve()
    if not args.binary.exists():
        parser.error(f"{args.binary} is not there: configure with -DMINISGL_BENCHMARKS=ON")

    python = environment(args.work / "venv")
    documents, made_of = make_corpus(fetch(python, args.work))
    digest = hashlib.sha256("\0".join(documents).encode()).hexdigest()
    for part in made_of:
        print(f"{part['part']:10}{part['bytes']:>10} bytes from {part['files']} files of {SOURCE}")
    print(f"sha256 of the corpus {digest}; one thread each, {processor()}")
    if args.llama3:
        args.folders.append(llama3_vocabulary.folder(python, args.work))
    results = []
    for folder in args.folders:
        print(f"  {folder.name} ...", flush=True)
        results.append(compare(args, python, documents, folder.resolve()))
    print_table(results)
    if args.json:
        report = {
            "date": datetime.date.today().isoformat(),
            "processor": processor(),
            "corpus": {"source": SOURCE, "sha256": digest, "parts": made_of},
            "repeat": args.repeat,
            "tokenizers": results,
        }
        args.json.write_text(json.dumps(report, indent=2) + "\n")
        print(f"written: {args.json}")
    return 0 if all(all(r["ids_equal"].values()) for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
