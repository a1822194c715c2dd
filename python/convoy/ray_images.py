"""The images that workers of convoy.ray read: pictures of a folder, or an IDX file."""

from __future__ import annotations

import functools
import gzip
import os
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ._core import Error, FileError, FileNotFound, InvalidFile, Unsupported

__all__ = ["Images", "Reader", "find_images"]

PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
MODES = {1: "L", 3: "RGB"}


class Images(NamedTuple):
    """The place of images: an IDX file or a list of picture files. All workers must see the same files.

    Attributes:
        source: The path of the IDX file, or of the folder with the pictures.
        count: The number of images.
        paths: The paths of the pictures; None for an IDX file.
        offset: The size of the IDX file's header, in bytes; 0 for pictures.
        shape: The shape of one image.
    """

    source: str
    count: int
    paths: tuple[str, ...] | None
    offset: int
    shape: tuple[int, ...]


def find_images(source: str | os.PathLike[str], image_shape: tuple[int, int, int]) -> Images:
    """Finds the images of a folder or of an IDX file.

    Pictures come in the order of their paths, including those in subfolders. The workers open them later, so a broken
    picture is found only then.

    Args:
        source: A folder of pictures, or an IDX file, plain or gzip.
        image_shape: The network's (height, width, channels).

    Returns:
        The `Images`.

    Raises:
        Error: There are no images, or those of an IDX file have another shape.
    """
    path = Path(source).resolve()
    if path.is_dir():
        if image_shape[2] not in MODES:
            raise Error(f"the network takes {image_shape[2]} channels, expected 1 or 3 for pictures. Pass an IDX file.")
        try:
            import PIL  # noqa: F401
        except ImportError:
            raise Unsupported("pictures need Pillow. Install it: pip install pillow") from None
        files = (file for file in path.rglob("*") if file.suffix.lower() in PICTURES and file.is_file())
        paths = tuple(sorted(map(str, files)))
        if not paths:
            raise FileNotFound(f"{path}: no picture in it. Expected files that end in {', '.join(PICTURES)}, or an IDX "
                               "file.")  # fmt: skip
        return Images(str(path), len(paths), paths, 0, image_shape)
    count, offset, shape = _idx_header(path)
    if (*shape, 1)[:3] != tuple(image_shape):
        raise InvalidFile(f"{path}: images of {(*shape, 1)[:3]}, expected {tuple(image_shape)} (height, width, "
                          "channels).")  # fmt: skip
    return Images(str(path), count, None, offset, shape)


def _idx_header(path: Path) -> tuple[int, int, tuple[int, ...]]:
    """Returns (number of images, size of the header, shape of one image) of a complete u8 IDX file, plain or gzip."""
    what = "Expected a folder of pictures, or an IDX file of u8 images [N, H, W] or [N, H, W, C], plain or gzip."
    try:
        data = _idx_bytes(str(path))
    except (OSError, EOFError, gzip.zlib.error) as error:
        raise FileError(f"{path}: {error}. {what}") from None
    head = bytes(data[:4])
    if len(head) < 4 or head[:3] != b"\0\0\x08" or head[3] not in (3, 4) or len(data) < 4 + 4 * head[3]:
        raise InvalidFile(f"{path}: begins with {head.hex() or 'nothing'}, so it is no IDX file of images. {what}")
    offset = 4 + 4 * head[3]
    count, *shape = struct.unpack(f">{head[3]}I", bytes(data[4:offset]))
    size = int(np.prod(shape, dtype=np.int64))
    if not count or count * size != len(data) - offset:
        raise InvalidFile(f"{path}: {len(data) - offset} bytes of images, expected {count} x {size}. Check whether it "
                          "was cut short.")  # fmt: skip
    return count, offset, tuple(shape)


def _idx_bytes(path: str) -> Any:
    """Returns the bytes of a file. A plain file is mapped, so each worker reads its part only; a gzip file is read."""
    facts = os.stat(path)
    return _kept_bytes(path, facts.st_mtime_ns, facts.st_size)


@functools.lru_cache(maxsize=1)
def _kept_bytes(path: str, changed: int, size: int) -> Any:
    """Returns the bytes of the file with this time of change and this size; the last result is kept."""
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if packed:
        with gzip.open(path) as file:
            return np.frombuffer(file.read(), np.uint8)
    if not size:
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "r")


class Reader:
    """Reads images by their numbers, in a worker."""

    def __init__(self, images: Images, resize: bool) -> None:
        self.images, self.resize = images, resize

    def read(self, numbers: Any) -> Any:
        """Returns these images, u8 [N, H, W, C] or [N, H, W]."""
        images = self.images
        if images.paths is not None:
            return np.stack([self.picture(images.paths[number]) for number in numbers])
        size = int(np.prod(images.shape, dtype=np.int64))
        data = _idx_bytes(images.source)[images.offset :].reshape(images.count, size)
        return data[numbers].reshape(len(numbers), *images.shape)

    def picture(self, path: str) -> Any:
        """Returns the pixels of a picture in the network's shape."""
        from PIL import Image

        h, w, channels = self.images.shape
        try:
            with Image.open(path) as picture:
                converted = picture.convert(MODES[channels])
        except (OSError, ValueError, SyntaxError) as error:
            raise InvalidFile(f"{path}: {error}. Expected a picture.") from None
        if converted.size != (w, h):
            if not self.resize:
                raise Error(
                    f"{path}: {converted.size[1]}x{converted.size[0]} (height x width), expected {h}x{w} for this "
                    "network. Pass --resize to scale pictures."
                )
            converted = converted.resize((w, h))
        return np.asarray(converted).reshape(h, w, channels)
