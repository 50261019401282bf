"""The small checkpoints of tests/data/tiny."""

import atexit
import functools
import gzip
import pathlib
import shutil
import tempfile

TINY = pathlib.Path(__file__).parent / "data" / "tiny"


@functools.cache
def tiny_model(name: str) -> pathlib.Path:
    """A checkpoint's folder. One with compressed files is unpacked, once, to a temporary folder."""
    packed = TINY / name
    if not list(packed.glob("*.safetensors.gz")):
        return packed
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"minisgl_{name}_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for file in packed.iterdir():
        if file.suffix == ".gz":
            (folder / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
        else:
            shutil.copy(file, folder)
    return folder
