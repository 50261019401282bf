#!/usr/bin/env python3
"""tests/data/tokenizers/llama3_digests.jsonl.gz from a file of cases for Llama 3's vocabulary.

    tools/oracle/make_llama3_digests.py tokenizer_cases.jsonl

The vocabulary may not be distributed; texts of our own and digests of the ids that Hugging Face
tokenizers makes of them may. A digest is FNV-1a, 64 bits, of the ids as little-endian int32.
"""

import gzip
import json
import pathlib
import sys

TARGET = pathlib.Path(__file__).parents[2] / "tests/data/tokenizers/llama3_digests.jsonl.gz"


def digest(ids: list[int]) -> str:
    value = 0xCBF29CE484222325
    for byte in b"".join(i.to_bytes(4, "little") for i in ids):
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def main() -> None:
    lines = []
    for line in pathlib.Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        ids = case["ids"]
        row = {"text": case["text"], "count": len(ids), "ids": digest(ids)}
        row["ids_add_special"] = digest(case.get("ids_add_special", ids))
        row["ids_special_as_text"] = digest(case.get("ids_special_as_text", ids))
        row["decoded"] = case["decoded"]
        row["decoded_skip_special"] = case.get("decoded_skip_special", case["decoded"])
        lines.append(json.dumps(row))
    TARGET.write_bytes(gzip.compress("\n".join(lines).encode() + b"\n", 9, mtime=0))


if __name__ == "__main__":
    main()
