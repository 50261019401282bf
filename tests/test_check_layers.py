"""tools/check_layers.py on made-up trees: each rule rejects what it should and nothing else."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest

TOOL = pathlib.Path(__file__).resolve().parent.parent / "tools" / "check_layers.py"
spec = importlib.util.spec_from_file_location("check_layers", TOOL)
check_layers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_layers)


def breaches(root, files):
    """Writes `files` (path: text) below `root`; the breaches found, without their places."""
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return check_layers.check_tree(root)[1]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("src/tensor/a.h", '#include "base/math.h"'),
        ("src/tensor/a.h", '#include "tensor/dtype.h"'),
        ("src/scheduler/a.cc", '#include "base/math.h"'),  # through six rows
        ("src/models/a.cc", '#include "formats/gguf.h"'),
        ("src/tokenizer/a.cc", '#include "formats/gguf.h"'),
        ("src/kernels/cpu/per_isa/a.cc", '  #  include "kernels/norm.h"'),
        ("src/base/a.h", '#include "minisgl/error.h"'),
        ("src/base/a.cc", "#include <nlohmann/json.hpp>"),
        ("src/base/a.cc", '// #include "server/http.h"'),
        ("src/core/a_test.cc", '#include "testing/random.h"'),
        ("src/testing/a.h", '#include "engine/executor.h"'),
        ("src/kernels/cuda/a.cu", "#include <cuda_runtime.h>"),
        ("apps/minisgl/main.cc", '#include "server/http.h"'),
        ("apps/minisgl/main.cc", '#include "commands.h"'),
        ("benchmarks/a.cc", '#include "testing/random.h"'),
        ("include/minisgl/llm.h", '#include "minisgl/error.h"'),
        ("include/minisgl/llm.h", "#include <vector>"),
    ],
)
def test_accepts_what_the_table_allows(tmp_path, path, line):
    assert breaches(tmp_path, {path: line}) == []


@pytest.mark.parametrize(
    ("path", "line", "reason"),
    [
        ("src/base/a.h", '#include "tensor/dtype.h"', "base/ must not include tensor/"),
        ("src/kernels/a.cc", '#include "core/batch.h"', "kernels/ must not include core/"),
        ("src/models/a.cc", '#include "scheduler/scheduler.h"', "must not include scheduler/"),
        ("src/llm/a_test.cc", '#include "server/http.h"', "llm/ must not include server/"),
        ("src/kernels/a.cc", '  #  include "kvcache/pool.h"', "must not include kvcache/"),
        ("src/chat/a.cc", '#include "tensor/../core/batch.h"', "write the path from src/"),
        ("src/core/a.cc", '#include "../server/http.h"', "write the path from src/"),
        ("src/core/a.cc", '#include "batch.h"', "write the path from src/"),
        ("src/core/a.cc", "#include <core/batch.h>", 'write "core/batch.h"'),
        ("src/core/a.cc", '#include "utils/x.h"', "utils/ is not in the table"),
        ("src/core/a.cc", '#include "testing/random.h"', "testing/ is for tests only"),
        ("src/core/a.cc", "#include <cuda_fp16.h>", "below a folder cuda/ only"),
        ("src/utils/a.h", "", "folder utils/ is not in the table"),
        ("src/a.h", "", "belong into one of its folders"),
        ("apps/minisgl/a.cc", '#include "testing/random.h"', "testing/ is for tests only"),
        ("apps/minisgl/a.cc", '#include "../../src/base/math.h"', "write the path from src/"),
        ("include/minisgl/llm.h", '#include "core/request.h"', "public headers must not include"),
        ("include/minisgl/llm.h", "#include <nlohmann/json.hpp>", "must not include"),
        ("src/CMakeLists.txt", "minisgl_layer(core DEPENDS tensor engine)", "must not link engine"),
        ("src/CMakeLists.txt", "minisgl_layer(utils)", "utils is not in the table"),
    ],
)
def test_rejects_one_breach_and_names_it(tmp_path, path, line, reason):
    found = breaches(tmp_path, {path: line})
    assert len(found) == 1, found
    assert found[0].startswith(path)
    assert reason in found[0]


def test_says_which_line(tmp_path):
    text = '#pragma once\n\n#include "base/math.h"\n#include "llm/generator.h"\n'
    assert breaches(tmp_path, {"src/base/a.h": text}) == [
        "src/base/a.h:4: base/ must not include llm/"
    ]


def test_reads_each_layer_of_a_cmake_file(tmp_path):
    text = "minisgl_layer(base LIBRARIES fmt::fmt x::y)\nminisgl_layer(tensor DEPENDS base chat)\n"
    assert breaches(tmp_path, {"src/CMakeLists.txt": text}) == [
        "src/CMakeLists.txt: tensor must not link chat"
    ]


def test_a_row_of_the_table_names_only_rows_above_it(monkeypatch):
    assert check_layers.check_table() == []
    monkeypatch.setitem(check_layers.LAYERS, "base", ("server",))
    assert check_layers.check_table() == ["table: base names server, which is not above it"]


def test_exit_status_says_whether_the_tree_is_clean(tmp_path):
    def run():
        return subprocess.run([sys.executable, TOOL, tmp_path], capture_output=True, text=True)

    empty = run()
    assert empty.returncode == 1
    assert "no sources here" in empty.stdout

    breaches(tmp_path, {"src/base/a.h": "#pragma once\n"})
    clean = run()
    assert clean.returncode == 0
    assert clean.stdout == "layers: 1 file, 0 breaches\n"

    breaches(tmp_path, {"src/base/a.h": '#include "llm/generator.h"\n'})
    dirty = run()
    assert dirty.returncode == 1
    assert "src/base/a.h:1: base/ must not include llm/" in dirty.stdout
