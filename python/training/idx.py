"""Reads Fashion-MNIST from IDX files, splits off a validation set, and makes three channels of one. NumPy only."""

import gzip
import os
import struct
from pathlib import Path

import numpy as np

DEBIAN_FOLDER = "/usr/share/datasets/fashion-mnist"
VALIDATION_IMAGES = 5000


class DataError(Exception):
    """A file is missing or wrong. The message names an action."""


class ToldError(DataError):
    """A DataError that another process of the run has raised and printed."""


def find_folder(option):
    """Returns the data folder: the option, else $CONVOY_DATA, the XDG data folder, or that of Debian's package."""
    xdg = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    candidates = [option, os.environ.get("CONVOY_DATA"), os.path.join(xdg, "convoy"), DEBIAN_FOLDER]
    for folder in [option] if option else candidates:
        if folder and (
            any(Path(folder).glob("train-images-idx3-ubyte*")) or any(Path(folder).glob("t10k-images-idx3-ubyte*"))
        ):
            return Path(folder)
    raise DataError(
        f"no Fashion-MNIST found; looked in --data ({option or 'not given'}), "
        f"$CONVOY_DATA ({os.environ.get('CONVOY_DATA') or 'not set'}), {candidates[2]} and {DEBIAN_FOLDER}. "
        "Install Debian's package dataset-fashion-mnist, or pass --data."
    )


def read_idx(path, dims):
    """Returns the u8 array of `dims` dimensions in an IDX file, plain or gzip. `path` may leave out the ending .gz."""
    path = Path(path)
    if not path.exists():
        path = path.with_name(path.name + ".gz")
    if not path.exists():
        raise DataError(f"{path}: no such file, with or without .gz. Check the path.")
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (EOFError, OSError, gzip.zlib.error) as error:
            raise DataError(f"{path}: broken gzip ({error}). Check whether the download is complete.") from None
    header = 4 + 4 * dims
    if len(raw) < header:
        raise DataError(f"{path}: {len(raw)} bytes, expected at least the {header} bytes of an IDX header.")
    magic, *shape = struct.unpack(f">{1 + dims}I", raw[:header])
    if magic != 0x800 + dims:
        raise DataError(f"{path}: magic 0x{magic:08x}, expected 0x{0x800 + dims:08x} (u8, {dims} dimensions).")
    expected = int(np.prod(shape, dtype=np.int64))
    if len(raw) - header != expected:
        raise DataError(f"{path}: {len(raw) - header} bytes of data, expected {expected} for shape {shape}.")
    return np.frombuffer(raw, np.uint8, offset=header).reshape(shape)


def read_set(folder, name):
    """Returns (images [N, 28, 28] u8, labels [N] u8) of the set 'train' or 't10k'."""
    images = read_idx(Path(folder) / f"{name}-images-idx3-ubyte", 3)
    labels = read_idx(Path(folder) / f"{name}-labels-idx1-ubyte", 1)
    if images.shape[1:] != (28, 28) or len(images) != len(labels):
        raise DataError(
            f"{folder}: {name} has images {images.shape} and {len(labels)} labels, expected [N, 28, 28] and N."
        )
    return images, labels


def split(images, labels):
    """Returns ((train images, labels), (validation images, labels)). The same 5,000 images are drawn in every run."""
    order = np.random.default_rng(20240607).permutation(len(images))
    held, rest = np.sort(order[:VALIDATION_IMAGES]), np.sort(order[VALIDATION_IMAGES:])
    return (images[rest], labels[rest]), (images[held], labels[held])


def write_idx(path, array):
    """Writes a u8 array as an IDX file, atomically; with gzip if the name ends in .gz."""
    path = Path(path)
    data = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
    if path.suffix == ".gz":
        data = gzip.compress(data, 6, mtime=0)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def edges(images):
    """Returns u8 images [N, 32, 32, 3] made from images [N, 28, 28]: the padded image and its differences.

    Channel 0 is the image u, padded with two rows and columns of zeros on each side. Channel 1 is
    |u[y, x + 1] - u[y, x - 1]| and channel 2 |u[y + 1, x] - u[y - 1, x]|, with zeros outside. All are integers of 0 to
    255, so any program makes the same bytes.
    """
    wide = np.zeros((len(images), 34, 34), np.int16)
    wide[:, 3:31, 3:31] = images
    inner = wide[:, 1:-1, 1:-1]
    across = np.abs(wide[:, 1:-1, 2:] - wide[:, 1:-1, :-2])
    down = np.abs(wide[:, 2:, 1:-1] - wide[:, :-2, 1:-1])
    return np.stack([inner, across, down], axis=-1).astype(np.uint8)


def images_for(image, images):
    """Returns Fashion-MNIST's images [N, 28, 28] as [N, H, W, C] for a network of `image` (height, width, channels)."""
    if image == (28, 28, 1):
        return images[..., None]
    if image == (32, 32, 3):
        return edges(images)
    raise DataError(
        "images of {}x{}x{}: expected 28x28x1, Fashion-MNIST's own, or 32x32x3, made from these.".format(*image)
    )
