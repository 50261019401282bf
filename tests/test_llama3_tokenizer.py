"""Llama 3's tokenizer, whose licence keeps its vocabulary out of this repository: it is fetched from
the Python package index, by its hash, and tested by a test of the C++ suite."""

import importlib
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEST = "Llama3TokenizerTest.EncodesAndDecodesEveryTextAsTheReference"


def test_llama3_encodes_and_decodes_as_the_reference(minisgl_binary, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    vocabulary = importlib.import_module("llama3_vocabulary")
    folder = vocabulary.folder(pathlib.Path(sys.executable), ROOT / ".cache" / "tokenizers")
    result = subprocess.run(
        [minisgl_binary.parent / "src" / "tokenizer_test", f"--gtest_filter={TEST}"],
        env={**os.environ, "MINISGL_LLAMA3": str(folder)},
        capture_output=True,
        text=True,
    )
    assert "[  PASSED  ] 1 test." in result.stdout, result.stdout[-3000:]
