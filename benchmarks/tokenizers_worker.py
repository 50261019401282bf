#!/usr/bin/env python3
"""Hugging Face tokenizers or tiktoken, driven as tokenizer_bench is (see there).

    tokenizers_worker.py {tokenizers|tiktoken} FOLDER CORPUS

One thread each. Of the ways in that a library offers, the fastest is taken that gives ids.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from byte_level import byte_alphabet  # noqa: E402

# GPT-2's pattern after a step that isolates digits, as one pattern: white space before a digit is
# at the end of its piece, so all of it matches.
SMOLLM2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"


class HuggingFace:
    def __init__(self, folder: pathlib.Path) -> None:
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode(self, documents: list[str]) -> list:
        # No offsets, which nobody asked for here.
        return self.tokenizer.encode_batch_fast(documents, add_special_tokens=False)

    def ids(self, encoded) -> list[int]:
        return encoded.ids


class Tiktoken:
    """tiktoken with the ranks that the ids of the vocabulary give."""

    def __init__(self, folder: pathlib.Path) -> None:
        import tiktoken

        model = json.loads((folder / "tokenizer.json").read_text())
        alphabet = byte_alphabet()
        added = {token["content"] for token in model["added_tokens"]}
        ranks = {
            bytes(alphabet[c] for c in token): rank
            for token, rank in model["model"]["vocab"].items()
            if token not in added
        }
        # It wants all 256 bytes; a vocabulary that lacks some is compared on a corpus without them.
        free = max(ranks.values()) + 1000
        for byte in range(256):
            ranks.setdefault(bytes([byte]), free + byte)
        self.encoding = tiktoken.Encoding(
            "compared", pat_str=self.pattern(model), mergeable_ranks=ranks, special_tokens={}
        )

    @staticmethod
    def pattern(model: dict) -> str:
        steps = model["pre_tokenizer"]["pretokenizers"]
        if [step["type"] for step in steps] == ["Digits", "ByteLevel"]:
            return SMOLLM2
        return steps[0]["pattern"]["Regex"]

    def encode(self, documents: list[str]) -> list:
        encode = self.encoding.encode_ordinary
        return [encode(text) for text in documents]

    def ids(self, encoded) -> list[int]:
        return encoded


def main() -> int:
    import numpy as np

    library, folder, corpus = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    side = {"tokenizers": HuggingFace, "tiktoken": Tiktoken}[library](folder)
    documents = corpus.read_bytes().decode().split("\0")[:-1]
    print("ready", flush=True)
    for line in sys.stdin:
        command = line.strip()
        start = time.process_time()
        encoded = side.encode(documents)
        seconds = time.process_time() - start
        if command == "pass":
            print(f"{seconds:.6f} {sum(len(side.ids(e)) for e in encoded)}", flush=True)
        else:
            with pathlib.Path(command.removeprefix("ids ")).open("wb") as out:
                for document in encoded:
                    ids = np.asarray(side.ids(document), dtype=np.int32)
                    out.write(np.int32(len(ids)).tobytes() + ids.tobytes())
            print("written", flush=True)
        del encoded
    return 0


if __name__ == "__main__":
    sys.exit(main())
