"""Fashion-MNIST from IDX files, the validation split, and augmentation by table look-up on the device."""

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import torch

DEBIAN_FOLDER = "/usr/share/datasets/fashion-mnist"
VALIDATION_IMAGES = 5000


class DataError(Exception):
    """A data file is missing or is not what it should be; the message says what to do."""


def find_folder(option):
    """The data folder: the option, then $CONVOY_DATA, then the XDG data folder, then Debian's package."""
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
        "Install Debian's package dataset-fashion-mnist or give --data"
    )


def read_idx(path, dims):
    """The u8 array in an IDX file (plain or gzip) of `dims` dimensions. `path` may lack the .gz that the file has."""
    path = Path(path)
    if not path.exists():
        path = path.with_name(path.name + ".gz")
    if not path.exists():
        raise DataError(f"{path}: no such file, with or without .gz")
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (EOFError, OSError, gzip.zlib.error) as error:
            raise DataError(f"{path}: broken gzip ({error}). Was the download cut short?") from None
    header = 4 + 4 * dims
    if len(raw) < header:
        raise DataError(f"{path}: {len(raw)} bytes, expected at least the {header} bytes of an IDX header")
    magic, *shape = struct.unpack(f">{1 + dims}I", raw[:header])
    if magic != 0x800 + dims:
        raise DataError(f"{path}: magic 0x{magic:08x}, expected 0x{0x800 + dims:08x} (u8, {dims} dimensions)")
    expected = int(np.prod(shape, dtype=np.int64))
    if len(raw) - header != expected:
        raise DataError(f"{path}: {len(raw) - header} bytes of data, expected {expected} for shape {shape}")
    return np.frombuffer(raw, np.uint8, offset=header).reshape(shape)


def read_set(folder, name):
    """(images [N, 28, 28] u8, labels [N] u8) of the set 'train' or 't10k'."""
    images = read_idx(Path(folder) / f"{name}-images-idx3-ubyte", 3)
    labels = read_idx(Path(folder) / f"{name}-labels-idx1-ubyte", 1)
    if images.shape[1:] != (28, 28) or len(images) != len(labels):
        raise DataError(
            f"{folder}: {name} has images {images.shape} and {len(labels)} labels, expected [N, 28, 28] and N"
        )
    return images, labels


def split(images, labels):
    """((train images, labels), (validation images, labels)): 5,000 images drawn once, the same in every run."""
    order = np.random.default_rng(20240607).permutation(len(images))
    held, rest = np.sort(order[:VALIDATION_IMAGES]), np.sort(order[VALIDATION_IMAGES:])
    return (images[rest], labels[rest]), (images[held], labels[held])


def normalise(images):
    """u8 images as the network sees them: (x / 255 - 0.5) / 0.5 in fp32."""
    return (images.float() / 255.0 - 0.5) / 0.5


class Augmenter:
    """Flips and shifts of 28x28 images as one gather: variant v of image i is `padded[i][offsets[v]]`.

    There are few variants (2 flips x (2 * shift + 1)^2), so what a teacher says about each can be computed once
    and looked up in training.
    """

    def __init__(self, images, shift, device):
        side = 28 + 2 * shift
        self.images = torch.zeros(len(images), side * side, dtype=torch.uint8, device=device)
        inner = torch.from_numpy(np.ascontiguousarray(images)).to(device)
        self.images.view(-1, side, side)[:, shift : shift + 28, shift : shift + 28] = inner
        grid = torch.arange(side * side, device=device).view(side, side)
        variants = []
        for top in range(2 * shift + 1):
            for left in range(2 * shift + 1):
                window = grid[top : top + 28, left : left + 28]
                variants += [window.reshape(-1), window.flip(1).reshape(-1)]
        self.offsets = torch.stack(variants)
        self.identity = 2 * (shift * (2 * shift + 1) + shift)

    @property
    def variants(self):
        return len(self.offsets)

    def __call__(self, index, variant):
        """Normalised images [B, 28, 28] of `index` [B] under `variant` [B]."""
        flat = index[:, None] * self.images.shape[1] + self.offsets[variant]
        return normalise(self.images.view(-1)[flat]).view(-1, 28, 28)
