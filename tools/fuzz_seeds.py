#!/usr/bin/env python3
"""Writes the inputs that the fuzzers begin with: small ones, out of the test data.

tools/fuzz_seeds.py FOLDER    FOLDER/<target>/ gets the inputs, FOLDER/<target>.dict its words
"""

from __future__ import annotations

import json
import lzma
import pathlib
import random
import re
import struct
import sys

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
SEPARATOR = b"\n=====\n"  # fuzz/input.h

# GGUF value types.
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def gguf_string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(value) -> bytes:
    """Type and value; lists are arrays of strings, integers or floats."""
    if isinstance(value, bool):
        return struct.pack("<IB", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", U32, value)
    if isinstance(value, float):
        return struct.pack("<If", F32, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + gguf_string(value)
    kind, form = {str: (STRING, ""), int: (I32, "<i"), float: (F32, "<f")}[type(value[0])]
    items = [gguf_string(v) if kind == STRING else struct.pack(form, v) for v in value]
    return struct.pack("<IIQ", ARRAY, kind, len(items)) + b"".join(items)


def gguf(metadata: dict, tensors: dict[str, list[int]]) -> bytes:
    """A version 3 file; tensors are f32 zeros, by their sizes (the fastest first)."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    head += b"".join(gguf_string(key) + gguf_value(value) for key, value in metadata.items())
    data = b""
    for name, sizes in tensors.items():
        head += gguf_string(name) + struct.pack("<I", len(sizes))
        head += struct.pack(f"<{len(sizes)}Q", *sizes) + struct.pack("<IQ", 0, len(data))
        count = 4
        for size in sizes:
            count *= size
        data += bytes((count + 31) // 32 * 32)
    return head.ljust((len(head) + 31) // 32 * 32, b"\0") + data


def gguf_seeds():
    model = {
        "general.architecture": "llama", "general.name": "seed", "llama.block_count": 1,
        "llama.context_length": 64, "llama.embedding_length": 4, "llama.feed_forward_length": 8,
        "llama.attention.head_count": 2, "llama.attention.head_count_kv": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 1e4,
        "llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0,
    }  # fmt: skip
    gpt2 = ["<|end|>", "A", "h", "l", "o", "Ġ", "lo", "lĠ", "Ġw", "w", "1", "<|im_end|>"]
    merges = ["l o", "l \u0120", "\u0120 w"]
    bpe = {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": gpt2,
        "tokenizer.ggml.token_type": [3] + [1] * 10 + [4], "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.chat_template": "{{ messages }}", "tokenizer.ggml.add_bos_token": True,
    }  # fmt: skip
    sp = ["<unk>", "<s>", "</s>", "<0x41>", "\u2581", "h", "e", "l", "\u2581h", "el", "ll"]
    llama = {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": sp,
        "tokenizer.ggml.scores": [0.0] * 8 + [-1.0, -2.0, -3.0],
        "tokenizer.ggml.token_type": [2, 3, 3, 6] + [1] * 7, "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.add_space_prefix": True,
    }  # fmt: skip
    embedding = {"token_embd.weight": [4, 12], "rope_freqs.weight": [1]}
    yield gguf(model | bpe | {"tokenizer.ggml.pre": "qwen2"}, embedding)
    yield gguf(model | bpe | {"tokenizer.ggml.pre": "llama-bpe"}, {})
    yield gguf(model | llama, embedding)
    yield gguf({"general.architecture": "qwen3", "general.alignment": 64}, {"a": [2, 3], "b": [1]})
    for path in sorted((DATA / "gguf").glob("*.gguf")):
        yield path.read_bytes()


def safetensors(header: dict, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    text = text.ljust((len(text) + 7) // 8 * 8)
    return struct.pack("<Q", len(text)) + text + data


def safetensors_seeds():
    def tensor(dtype: str, shape: list[int], begin: int, end: int) -> dict:
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    yield safetensors({"a": tensor("F32", [2, 2], 0, 16)}, bytes(16))
    yield safetensors(
        {
            "__metadata__": {"format": "pt"},
            "scalar": tensor("BF16", [], 0, 2), "odd": tensor("U8", [3], 2, 5),
            "shifted": tensor("F16", [2, 1], 5, 9), "none": tensor("I64", [0, 7], 9, 9),
            "new": tensor("F8_E4M3", [1, 1, 1, 1, 1], 9, 10),
        },
        bytes(10),
    )  # fmt: skip
    yield safetensors({}, b"")


def index_seeds():
    yield json.dumps(
        {
            "metadata": {"total_size": 11},
            "weight_map": {"a": "model-1.safetensors", "b": "model-1.safetensors"},
        }
    ).encode()
    yield b'{"weight_map":{"a":"model-2.safetensors"}}'
    yield b'{"weight_map":{"c":"../model-1.safetensors"}}'


def config_seeds():
    for path in sorted((DATA / "tiny").glob("*/config*.json")):
        yield path.read_bytes()
        generation = path.parent / "generation_config.json"
        if generation.exists():
            yield path.read_bytes() + SEPARATOR + generation.read_bytes()


def trimmed(tokenizer: dict, count: int) -> dict:
    """The tokenizer with the first `count` tokens, and the merges among those."""
    model = tokenizer["model"]
    vocab = dict(sorted(model["vocab"].items(), key=lambda item: item[1])[:count])
    pairs = [m if isinstance(m, list) else m.split(" ") for m in model["merges"]]
    kept = [p for p in pairs if p[0] in vocab and p[1] in vocab and "".join(p) in vocab]
    small = dict(model, vocab=vocab, merges=[" ".join(p) for p in kept[:20]])
    return dict(tokenizer, model=small, added_tokens=tokenizer.get("added_tokens", [])[:3])


def tokenizer_seeds():
    config = json.dumps(
        {
            "bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": "{{ x }}",
            "added_tokens_decoder": {"7": {"content": "<new>", "special": True, "lstrip": True}},
        }
    ).encode()  # fmt: skip
    paths = [*sorted((DATA / "tiny").glob("*/tokenizer.json"))[:1]]
    paths += sorted((DATA / "tokenizers").glob("*/tokenizer.json.xz"))
    for path in paths:
        data = path.read_bytes()
        whole = json.loads(lzma.decompress(data) if path.suffix == ".xz" else data)
        for count in (16, 300):
            text = json.dumps(trimmed(whole, count), ensure_ascii=False).encode()
            yield text
            yield text + SEPARATOR + config + SEPARATOR + "Hello w\u00f6rld, 12 <new> </s>".encode()


def jinja_seeds():
    folder = DATA / "chat_templates"
    context = json.loads((folder / "jinja_snippets_context.json").read_text())
    small = json.dumps({"s": "Hello", "l": [3, 1, 2], "d": {"b": 1, "a": None}, "f": 2.5}).encode()
    for name in ("jinja_snippets.jsonl", "jinja_more_snippets.jsonl"):
        for line in (folder / name).read_text().splitlines():
            template = json.loads(line)["template"]
            used = {k: v for k, v in context.items() if re.search(rf"\b{k}\b", template)}
            yield template.encode() + SEPARATOR + (json.dumps(used).encode() if used else small)
    messages = json.dumps(
        {
            "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}],
            "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>",
        }
    ).encode()  # fmt: skip
    for path in sorted(folder.glob("*.jinja")):
        if path.stat().st_size < 4000:
            yield path.read_bytes() + SEPARATOR + messages


def bpe_seeds():
    """As fuzz/bpe_target.cc reads them."""
    rng = random.Random(1)
    for flags in range(64):
        letters = b"abcd"
        merges = bytes(rng.randrange(12) for _ in range(2 * 10))
        word = bytes(rng.choice(letters + b"?\xc3") for _ in range(rng.choice([5, 60, 70, 300])))
        yield bytes([flags, len(letters) - 1]) + letters + bytes([10]) + merges + word


SEEDS = {
    "gguf": gguf_seeds,
    "safetensors": safetensors_seeds,
    "safetensors_index": index_seeds,
    "config": config_seeds,
    "tokenizer_json": tokenizer_seeds,
    "jinja": jinja_seeds,
    "bpe": bpe_seeds,
}
WORDS = {
    "jinja": rb"[A-Za-z_]{2,16}|\{%-?|-?%\}|\{\{-?|-?\}\}|\{#|#\}|\*\*|//|==|!=|<=|>=",
    "bpe": None,
}


def quoted(word: bytes) -> str:
    plain = "".join(chr(b) if 0x20 <= b < 0x7F and b not in b'"\\' else f"\\x{b:02x}" for b in word)
    return f'"{plain}"'


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(sys.argv[1])
    for target, seeds in SEEDS.items():
        folder = root / target
        folder.mkdir(parents=True, exist_ok=True)
        words = set()
        pattern = WORDS.get(target, rb'"[A-Za-z0-9_./<>|-]{1,40}"|[a-z0-9_]+(?:\.[a-z0-9_]+)+')
        for number, seed in enumerate(seeds()):
            (folder / f"seed-{number:04}").write_bytes(seed)
            if pattern:
                words.update(re.findall(pattern, seed))
        lines = [quoted(word) for word in sorted(words)[:1000]]
        if target in ("config", "tokenizer_json", "jinja"):
            lines.append(quoted(SEPARATOR))
        (root / f"{target}.dict").write_text("".join(line + "\n" for line in lines))
        print(f"{target}: {len(list(folder.iterdir()))} inputs, {len(lines)} words")
    return 0


if __name__ == "__main__":
    sys.exit(main())
