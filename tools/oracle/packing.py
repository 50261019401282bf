"""Compression of test data: xz, which the tests unpack wherever they find it."""

import lzma

# (lc, lp, pb) of LZMA. The two first know where in a bf16 or f32 a byte stands: 8 % smaller than the
# last, xz's own choice, which suits text.
SETTINGS = ((3, 1, 1), (2, 2, 2), (3, 0, 2))


def pack(data: bytes) -> bytes:
    """`data` as the smallest .xz file that one of SETTINGS gives."""
    return min((compressed(data, *setting) for setting in SETTINGS), key=len)


def compressed(data: bytes, lc: int, lp: int, pb: int) -> bytes:
    preset = 9 | lzma.PRESET_EXTREME
    lzma2 = {"id": lzma.FILTER_LZMA2, "preset": preset, "lc": lc, "lp": lp, "pb": pb}
    return lzma.compress(data, filters=[lzma2])
