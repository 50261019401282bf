"""What loading a checkpoint takes: each rank's share of the weights, and little beside it."""

import json
import pathlib
import subprocess
import sys

import pytest

MEASURE = pathlib.Path(__file__).resolve().parent.parent / "benchmarks" / "load_memory.py"
MARGIN = 80 << 20  # the program, two buffers of 32 MB on their way, rounding to huge pages


@pytest.mark.parametrize("alignment", [(), ("--unaligned",)])
def test_each_rank_takes_its_share_of_memory_alone(minisgl_binary, tmp_path, alignment):
    command = [sys.executable, MEASURE, minisgl_binary, "--gigabytes", "0.2", "--folder", tmp_path,
               "--json", *alignment]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    one, two = found["results"]
    print(found)
    assert 190e6 < found["bytes"] < 210e6
    assert [len(run["memory"]) for run in (one, two)] == [1, 2]
    for run in (one, two):
        share = found["bytes"] / run["ranks"]
        for memory in run["memory"]:
            assert share < memory["peak"] < share + MARGIN
