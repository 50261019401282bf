"""Llama 3's vocabulary as a tokenizer.json, for comparisons on one's own machine.

Its licence (Llama 3 Community License) does not let it be part of this repository, so it is fetched
from the package llama-models, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import pathlib
import subprocess
import sys
import zipfile

from byte_level import byte_alphabet

PACKAGE = "llama-models==0.3.0"
WHEEL = "llama_models-0.3.0-py3-none-any.whl"
SHA256 = "7f77f78ff13fca09f70d76a376aff6414cd901623fb9d57e69c2f8367a73032f"
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BEGIN = "<|begin_of_text|>"
# Ids from 128000 on; all others up to 128255 are "<|reserved_special_token_N|>" in their order.
SPECIAL = {
    0: BEGIN,
    1: "<|end_of_text|>",
    4: "<|finetune_right_pad_id|>",
    6: "<|start_header_id|>",
    7: "<|end_header_id|>",
    8: "<|eom_id|>",
    9: "<|eot_id|>",
    10: "<|python_tag|>",
}
FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)


def ranks_of(model: bytes) -> dict[bytes, int]:
    """Token -> id, which is its rank, of a file in tiktoken's format."""
    pairs = (line.split() for line in model.splitlines() if line.strip())
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def merges_of(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Every way to put a token together from two others, in the order of ranks: with these, merging
    by the order of merges is merging by rank. Source: TikTokenConverter of transformers."""
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        halves = [(token[:i], token[i:]) for i in range(1, len(token))]
        known = [pair for pair in halves if pair[0] in ranks and pair[1] in ranks]
        merges += sorted(known, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    return merges


def added_tokens() -> list[dict]:
    names = (f"<|reserved_special_token_{n}|>" for n in itertools.count())
    contents = [SPECIAL.get(i) or next(names) for i in range(256)]
    return [
        {"id": 128000 + i, "content": c, **FLAGS, "special": True} for i, c in enumerate(contents)
    ]


def folder(python: pathlib.Path, work: pathlib.Path) -> pathlib.Path:
    """The folder with the tokenizer.json; makes it when it is not there."""
    target = work / "llama3"
    if (target / "tokenizer.json").exists():
        return target
    work.mkdir(parents=True, exist_ok=True)
    wheel = work / WHEEL
    if not wheel.exists():
        pip = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", work, PACKAGE]
        subprocess.run(pip, check=True)
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != SHA256:
        sys.exit(f"{wheel} has the sha256 {found}; {SHA256} is expected")
    with zipfile.ZipFile(wheel) as archive:
        ranks = ranks_of(archive.read("llama_models/llama3/tokenizer.model"))
    character = {byte: c for c, byte in byte_alphabet().items()}
    spell = lambda token: "".join(character[byte] for byte in token)  # noqa: E731
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated"}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    model = {
        "version": "1.0",
        "added_tokens": added_tokens(),
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{**split, "invert": False}, {**byte_level, "use_regex": False}],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": BEGIN, "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [],
            "special_tokens": {BEGIN: {"id": BEGIN, "ids": [128000], "tokens": [BEGIN]}},
        },
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "ignore_merges": True,
            "vocab": {spell(token): rank for token, rank in ranks.items()},
            "merges": [f"{spell(left)} {spell(right)}" for left, right in merges_of(ranks)],
        },
    }
    target.mkdir(parents=True, exist_ok=True)
    (target / "tokenizer.json").write_text(json.dumps(model))
    return target
