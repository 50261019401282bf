#!/usr/bin/env python3
"""Write tests/data/gguf/types_v3.gguf, types_v2.gguf, types.f32 and types.json.

The GGUF files have one tensor of each type that the engine reads, filled with random blocks whose
scales reach from the smallest subnormal to the largest f16; types.f32 has what the `gguf` package
makes of them (raw little-endian f32, one tensor after another), types.json says where each tensor
lies in both. The same bytes come out on every run.

Needs: pip install gguf==0.19.0 numpy
"""

import json
import pathlib
import sys

import gguf
import numpy as np

ROWS = 3
# d and m of blocks: zeros of both signs, extremes, ordinary values.
SCALES = [0.0, -0.0, 6e-8, -6e-8, 6.1e-5, 65504.0, -65504.0, 1.0, -0.0123, 0.00371, 2.5]
# type: (columns, offsets of the f16 numbers in a block)
TYPES = {
    "F32": (40, []),
    "F16": (40, [0]),
    "BF16": (40, []),
    "Q4_0": (96, [0]),
    "Q4_1": (96, [0, 2]),
    "Q5_0": (96, [0]),
    "Q5_1": (96, [0, 2]),
    "Q8_0": (96, [0]),
    "IQ4_NL": (96, [0]),
    "Q2_K": (512, [80, 82]),
    "Q3_K": (512, [108]),
    "Q4_K": (512, [0, 2]),
    "Q5_K": (512, [0, 2]),
    "Q6_K": (512, [208]),
    "IQ4_XS": (512, [0]),
}


def random_scale(rng):
    if rng.random() < 0.5:
        return np.float16(SCALES[rng.integers(len(SCALES))])
    while True:
        value = rng.integers(0, 1 << 16, dtype=np.uint16).view(np.float16)
        if np.isfinite(value):
            return value


def random_rows(rng, name, cols, scale_offsets):
    """Raw bytes [ROWS, bytes of a row]."""
    kind = gguf.GGMLQuantizationType[name]
    if name == "F32":
        return rng.standard_normal((ROWS, cols), dtype=np.float32).view(np.uint8)
    if name == "BF16":
        bits = (rng.standard_normal((ROWS, cols), dtype=np.float32) * 1e3).view(np.uint32) >> 16
        return bits.astype(np.uint16).view(np.uint8)
    if name == "F16":
        values = [[random_scale(rng) for _ in range(cols)] for _ in range(ROWS)]
        return np.array(values, dtype=np.float16).view(np.uint8)
    block_elems, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (ROWS * cols // block_elems, block_bytes), dtype=np.uint8)
    for block in blocks:
        for offset in scale_offsets:
            block[offset : offset + 2] = np.array([random_scale(rng)]).view(np.uint8)
    blocks[0, :] = np.where(
        np.isin(np.arange(block_bytes), [o + b for o in scale_offsets for b in (0, 1)]),
        blocks[0, :],
        255,
    )
    return blocks.reshape(ROWS, -1)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.Generator(np.random.PCG64(20261130))
    path = folder / "types_v3.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("general.name", "one tensor of each type")
    writer.add_array("test.tokens", ["a", "\u00e9", ""])
    writer.add_array("test.ids", [1, -2, 3])
    writer.add_float32("test.float", 0.5)
    writer.add_bool("test.bool", True)
    expected = {}
    for name, (cols, scale_offsets) in TYPES.items():
        kind = gguf.GGMLQuantizationType[name]
        raw = random_rows(rng, name, cols, scale_offsets)
        expected[name] = gguf.quants.dequantize(raw, kind).astype(np.float32)
        assert expected[name].shape == (ROWS, cols) and np.isfinite(expected[name]).all(), name
        if name in ("F32", "F16"):  # the writer takes these two as arrays
            raw = raw.view(np.float32 if name == "F32" else np.float16)
        writer.add_tensor(f"test.{name}", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    data = bytearray(path.read_bytes())
    data[4:8] = (2).to_bytes(4, "little")  # versions 2 and 3 differ in byte order only
    (folder / "types_v2.gguf").write_bytes(data)

    index, out, position = [], bytearray(), 0
    tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}
    for name, values in expected.items():
        tensor = tensors[f"test.{name}"]
        index.append(
            {
                "name": tensor.name,
                "type": name,
                "rows": ROWS,
                "cols": TYPES[name][0],
                "file_offset": int(tensor.data_offset),
                "bytes": int(tensor.n_bytes),
                "expected_offset": position,
            }
        )
        out += values.astype("<f4").tobytes()
        position = len(out)
    (folder / "types.f32").write_bytes(out)
    text = ",\n".join(json.dumps(entry) for entry in index)
    (folder / "types.json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    root = pathlib.Path(__file__).resolve().parents[2]
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "tests/data/gguf")
