#!/usr/bin/env python3
"""Write tests/data/tokenizers/styles.json.xz: small tokenizers with the processing steps of real ones.

Each has the normalizer, pre-tokenizer, decoder, post-processor and added-token flags that the
tokenizer.json files of a family of models have, a vocabulary of some hundred tokens trained here on
the texts of the tests, and what Hugging Face tokenizers makes of a hundred texts.

Needs: pip install tokenizers==0.23.3
"""

import gzip
import json
import pathlib

from packing import pack
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
from tokenizers import pre_tokenizers as pre
from tokenizers import processors as post

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data"

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K_POSSESSIVE = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTION}|\p{{N}}{{1,3}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def texts():
    lines = gzip.decompress((DATA / "tokenizers/qwen3/tokenizer_cases.jsonl.gz").read_bytes())
    found = [json.loads(line)["text"] for line in lines.decode().splitlines()]
    short = [text for text in found if len(text) <= 400]
    chosen = short[:: max(1, len(short) // 90)]
    return chosen + [
        "",
        " ",
        "hello",
        " hello",
        "  two  spaces  ",
        "a<s>b</s>c",
        "hi<|end|>  \n yo",
        "x  <mask> y",
        "two wo wo.",
        "line\n\nline\n\n\nline",
        "don't DON'T we'LL I'm it's O'Reilly",
        "in 1999, pi=3.14159 and 20260131",
        "HTMLParser camelCaseWord ABCdef Ǆura ʰa",
        "中文字符和English混合123测试、ひらがなカタカナ",
        "path/to/file.txt//\n// comment\r\n",
        "▁already▁marked ▁ here",
        "\u0e01\u0e34\u0e19 \u0301e\u0301",
    ]


def corpus():
    return [(DATA / "smollm2/ppl_text.txt").read_text(), *texts()]


def split(pattern, behavior="isolated", invert=False):
    return pre.Split(Regex(pattern), behavior=behavior, invert=invert)


def byte_level(steps, vocab_size=600, normalizer=None, ignore_merges=False, prefix_space=None):
    """A tokenizer over bytes; `steps` come before the mapping of bytes."""
    tok = Tokenizer(models.BPE())
    if normalizer:
        tok.normalizer = normalizer
    last = pre.ByteLevel(add_prefix_space=bool(prefix_space), use_regex=prefix_space is not None)
    tok.pre_tokenizer = pre.Sequence([*steps, last]) if steps else last
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=sorted(pre.ByteLevel.alphabet()),
        show_progress=False,
    )
    tok.train_from_iterator(corpus(), trainer)
    tok.post_processor = post.ByteLevel(trim_offsets=False)
    if ignore_merges:  # so many merges are missing that it shows
        file = json.loads(tok.to_str())
        del file["model"]["merges"][::7]
        file["model"]["ignore_merges"] = True
        tok = Tokenizer.from_str(json.dumps(file))
    return tok


def byte_fallback(normalizer, pre_tokenizer, decoder):
    """A tokenizer in SentencePiece's manner: characters, and bytes for those it lacks."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = pre.Split("▁", behavior="merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=500, limit_alphabet=120, show_progress=False)
    trained.train_from_iterator(corpus(), trainer)
    file = json.loads(trained.to_str())["model"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    by_id = sorted(file["vocab"], key=file["vocab"].get)
    tokens += [token for token in by_id if token not in tokens]
    tok = Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=[tuple(merge) for merge in file["merges"]],
            byte_fallback=True,
            fuse_unk=True,
            unk_token="<unk>",
        )
    )
    tok.normalizer = normalizer
    if pre_tokenizer:
        tok.pre_tokenizer = pre_tokenizer
    tok.decoder = decoder
    return tok


def add_bos(tok):
    tok.post_processor = post.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tok.token_to_id("<s>"))]
    )


def sp_decoder(*more):
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *more]
    return decoders.Sequence(steps)


def styles():
    digits3 = split(r"\p{N}{1,3}")
    cjk = split(r"[一-龥\u3040-ゟ゠-ヿ]+")
    prepend = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    all_styles = {
        "llama3": byte_level([split(CL100K)], ignore_merges=True),
        "mistral-tekken": byte_level([split(TEKKEN)], ignore_merges=True),
        "o200k": byte_level([split(O200K)]),
        "phi4": byte_level([split(CL100K, "removed", invert=True)]),
        "cl100k-possessive": byte_level([split(CL100K_POSSESSIVE)]),
        "deepseek-v3": byte_level([digits3, cjk, split(DEEPSEEK)]),
        "qwen35": byte_level([split(QWEN35)], normalizer=normalizers.NFC()),
        "phi2": byte_level([], prefix_space=False),
        "gpt2-prefix-space": byte_level([], prefix_space=True),
        "starcoder": byte_level([pre.Digits(individual_digits=True)], prefix_space=False),
        "gemma": byte_fallback(
            normalizers.Replace(" ", "▁"),
            pre.Split(" ", behavior="merged_with_previous"),
            sp_decoder(),
        ),
        "llama2": byte_fallback(prepend, None, sp_decoder(decoders.Strip(" ", 1, 0))),
        "phi3": byte_fallback(prepend, None, sp_decoder(decoders.Strip(" ", 1, 0))),
        "mistral-metaspace": byte_fallback(
            normalizers.Sequence([]),
            pre.Metaspace(replacement="▁", prepend_scheme="first", split=False),
            sp_decoder(decoders.Strip(" ", 1, 0)),
        ),
        "metaspace-words": byte_fallback(
            normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]),
            pre.Metaspace(replacement="▁", prepend_scheme="always", split=True),
            decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace("▁", "always", True)]),
        ),
    }
    for name, tok in all_styles.items():
        rstrip = name == "phi3"
        tok.add_special_tokens(
            [
                AddedToken("<s>", normalized=False),
                AddedToken("</s>", rstrip=rstrip, normalized=False),
                AddedToken("<|end|>", rstrip=rstrip, normalized=False),
                AddedToken("<mask>", lstrip=True, normalized=name == "gpt2-prefix-space"),
            ]
        )
        more = ["\n\n", "▁▁"] if name == "gemma" else ["wo"]
        tok.add_tokens([AddedToken(t, single_word=t == "wo", normalized=False) for t in more])
        if name not in ("deepseek-v3", "phi2", "starcoder", "qwen35"):
            add_bos(tok)
    return all_styles


def case(tok, text):
    ids = tok.encode(text, add_special_tokens=False).ids
    row = {"text": text, "ids": ids, "decoded": tok.decode(ids, skip_special_tokens=False)}
    row["ids_add_special"] = tok.encode(text, add_special_tokens=True).ids
    row["decoded_skip_special"] = tok.decode(ids, skip_special_tokens=True)
    tok.encode_special_tokens = True
    row["ids_special_as_text"] = tok.encode(text, add_special_tokens=False).ids
    tok.encode_special_tokens = False
    return row


def main():
    found = {}
    for name, tok in styles().items():
        rows = [case(tok, text) for text in texts()]
        found[name] = {"tokenizer": json.loads(tok.to_str()), "cases": rows}
    text = json.dumps(found, separators=(",", ":"))
    path = DATA / "tokenizers" / "styles.json.xz"
    path.write_bytes(pack(text.encode()))
    print(f"{path.name}: {len(found)} styles, {len(text)} bytes, {path.stat().st_size} packed")


if __name__ == "__main__":
    main()
