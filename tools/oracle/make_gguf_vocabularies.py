#!/usr/bin/env python3
"""Write the GGUF files of tests/data/tokenizers, which hold a vocabulary and no tensors.

smollm2-small.gguf: tokens 0 to 1,999 of smollm2 and the merges among them, a user-defined token, an
end-of-turn token and a padding token. smollm2-small_cases.jsonl.gz: what Hugging Face tokenizers
makes of the texts of smollm2 with just that vocabulary.
sp-legacy.gguf: the vocabulary of sp-legacy with a score for each token, as SentencePiece has it;
the cases of sp-legacy hold for it.

Needs: pip install gguf==0.19.0 tokenizers==0.23.3
"""

import gzip
import json
import lzma
import pathlib

import gguf
from tokenizers import AddedToken, Tokenizer

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "tokenizers"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SMALL = 2000


def read_json(path):
    return json.loads(lzma.decompress(path.read_bytes()))


def write_gguf(name, model, fields):
    writer = gguf.GGUFWriter(DATA / name, "llama")
    writer.add_tokenizer_model(model)
    fields(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def make_smollm2_small():
    file = read_json(DATA / "smollm2" / "tokenizer.json.xz")
    by_id = sorted(file["model"]["vocab"].items(), key=lambda item: item[1])[:SMALL]
    tokens = [token for token, _ in by_id]
    known = set(tokens)
    merges = [m for m in file["model"]["merges"] if {m[0], m[1], "".join(m)} <= known]
    special = {t["id"] for t in file["added_tokens"]}
    types = [CONTROL if i in special else NORMAL for i in range(SMALL)]
    more = [("<think>", USER_DEFINED), ("<|eot_id|>", CONTROL), ("[PAD2002]", UNUSED)]

    def fields(writer):
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list(tokens + [token for token, _ in more])
        writer.add_token_types(types + [kind for _, kind in more])
        writer.add_token_merges([" ".join(m) for m in merges])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_add_bos_token(True)
        writer.add_chat_template(
            "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
        )

    write_gguf("smollm2-small.gguf", "gpt2", fields)

    file["model"]["vocab"] = dict(by_id)
    file["model"]["merges"] = merges
    small = Tokenizer.from_str(json.dumps(file))
    small.add_tokens([AddedToken("<think>", normalized=False)])
    small.add_special_tokens([AddedToken("<|eot_id|>", special=True, normalized=False)])
    texts = [
        json.loads(line)["text"]
        for line in gzip.decompress(
            (DATA / "smollm2" / "tokenizer_cases.jsonl.gz").read_bytes()
        ).splitlines()
    ]
    texts += ["<think>a</think><|eot_id|>", "x [PAD2002] y", "<|im_start|>user<think>"]
    rows = []
    for text in (t for t in texts if len(t) < 2000):
        ids = small.encode(text, add_special_tokens=False).ids
        small.encode_special_tokens = True
        as_text = small.encode(text, add_special_tokens=False).ids
        small.encode_special_tokens = False
        rows.append(
            {
                "text": text,
                "ids": ids,
                "ids_special_as_text": as_text,
                "decoded": small.decode(ids, skip_special_tokens=False),
            }
        )
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    packed = gzip.compress(lines.encode(), compresslevel=9, mtime=0)
    (DATA / "smollm2-small_cases.jsonl.gz").write_bytes(packed)


def make_sp_legacy():
    vocab = read_json(DATA / "sp-legacy" / "tokenizer.json.xz")["model"]["vocab"]
    tokens = sorted(vocab, key=vocab.get)
    first_learned = 3 + 256  # after <unk>, <s>, </s> and the bytes; scores 0, -1, -2, ... from here
    scores = [0.0] * first_learned + [-float(i) for i in range(len(tokens) - first_learned)]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(tokens) - first_learned)

    def fields(writer):
        writer.add_token_list(tokens)
        writer.add_token_scores(scores)
        writer.add_token_types(types)
        writer.add_unk_token_id(0)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)

    write_gguf("sp-legacy.gguf", "llama", fields)


if __name__ == "__main__":
    make_smollm2_small()
    make_sp_legacy()
