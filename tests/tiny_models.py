"""The small checkpoints of tests/data/tiny."""

import atexit
import functools
import gzip
import lzma
import pathlib
import shutil
import tempfile

UNPACK = {".gz": gzip.decompress, ".xz": lzma.decompress}
TINY = pathlib.Path(__file__).parent / "data" / "tiny"


@functools.cache
def tiny_model(name: str) -> pathlib.Path:
    """A checkpoint's folder. One with compressed files is unpacked, once, to a temporary folder."""
    packed = TINY / name
    if not any(file.suffix in UNPACK for file in packed.iterdir()):
        return packed
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"minisgl_{name}_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for file in packed.iterdir():
        if file.suffix in UNPACK:
            (folder / file.stem).write_bytes(UNPACK[file.suffix](file.read_bytes()))
        else:
            shutil.copy(file, folder)
    return folder
