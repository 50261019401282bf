#!/usr/bin/env python3
"""tests/data/sampling from the folder of sampling cases that oracle/sampling holds.

Usage: make_sampling.py ORACLE_SAMPLING_FOLDER tests/data/sampling

cases.jsonl: name of the logits, parameters, and whether a filter's border lies between equal logits
(then only the probabilities are binding, not the ids). logits.f32.gz: rows of 1,000, one for each of
the names in order of first use. probs.f32.gz: the exact final distributions, one row for each case.
Cases with penalties are left out: the sampler has no penalties yet.
"""

import gzip
import json
import pathlib
import struct
import sys
from array import array


def tensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    for name, info in header.items():
        if name != "__metadata__":
            begin, end = info["data_offsets"]
            code = {"F32": "f", "F64": "d"}[info["dtype"]]
            yield name, array(code, data[8 + length + begin : 8 + length + end])


def write(path, values):
    with gzip.GzipFile(path, "wb", compresslevel=9, mtime=0) as out:
        out.write(array("f", values).tobytes())


def main(source, target):
    found = dict(tensors(source / "sampling.safetensors"))
    lines, names, logits, probs = [], [], [], []
    for line in (source / "cases.jsonl").read_text().splitlines():
        case = json.loads(line)
        params = case["params"]
        if (
            params["repetition_penalty"] != 1
            or params["presence_penalty"]
            or params["frequency_penalty"]
        ):
            continue
        if case["logits"] not in names:
            names.append(case["logits"])
            logits.extend(found["logits." + case["logits"]])
        row = {"case": case["case"], "logits": names.index(case["logits"])}
        row |= {key: params[key] for key in ("temperature", "top_k", "top_p", "min_p")}
        row["support_size"] = case["support_size"]
        row["top_k_tie"] = case.get("top_k_boundary_tie", False)
        row["top_p_tie"] = case.get("top_p_boundary_tie", False)
        row["top_p_margin"] = case.get("top_p_margin")
        lines.append(json.dumps(row))
        probs.extend(found[f"probs.{case['case']}"])
    target.mkdir(parents=True, exist_ok=True)
    (target / "cases.jsonl").write_text("\n".join(lines) + "\n")
    write(target / "logits.f32.gz", logits)
    write(target / "probs.f32.gz", probs)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
