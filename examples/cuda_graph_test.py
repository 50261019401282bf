#!/usr/bin/env python3
"""Runs the example cuda_graph and compares what it prints with what chapter 18 promises.

cuda_graph_test.py PROGRAM MODEL
"""

import ast
import os
import subprocess
import sys


def expect(actual: object, expected: object, what: str) -> None:
    if actual != expected:
        sys.exit(f"{what}: expected {expected!r}, found {actual!r}")


def main() -> None:
    program, model = sys.argv[1:]
    environment = {**os.environ, "LOG_LEVEL": "ERROR"}
    result = subprocess.run([program, model], env=environment, capture_output=True, text=True)
    print(result.stdout)
    print(result.stderr, file=sys.stderr)
    expect(result.returncode, 0, "exit status")
    lines = result.stdout.splitlines()
    expect(lines[0], "recorded batch sizes: [1, 2, 4]", "sizes")
    expect(lines[2:7], ["3->4"] * 5, "replays")
    expect(lines[7], "matches the output without a graph: True", "replayed output")
    expect(
        lines[8],
        "matches the correct output after positions was not copied: False",
        "output without positions",
    )
    correct = ast.literal_eval(lines[9].removeprefix("  correct: "))
    wrong = ast.literal_eval(lines[10].removeprefix("  wrong:   "))
    expect((len(correct), len(wrong)), (6, 6), "numbers of tokens")
    expect(wrong[0], correct[0], "the first token, which comes from the prompt's step")
    parts = next(i for i, (a, b) in enumerate(zip(correct, wrong, strict=True), 1) if a != b)
    expect(
        lines[11], f"  they part at token {parts}, and nothing has reported an error", "difference"
    )
    expect(
        lines[12],
        "with check_graphs: graph input positions was not refreshed for this step",
        "checker",
    )


if __name__ == "__main__":
    main()
