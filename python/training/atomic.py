"""Writes files atomically: a file is complete or absent whenever the process or the machine stops."""

import hashlib
import io
import os
from pathlib import Path

import torch

from .idx import DataError

HEAD = b"convoy training 1 sha256 "


def replace(path, write):
    """Calls write(file) on a temporary file, and then renames that file to `path`."""
    path = Path(path)
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_bytes(path, data):
    """Writes bytes to a file atomically."""
    replace(path, lambda file: file.write(data))


def write_text(path, text):
    """Writes a text to a file atomically."""
    write_bytes(path, text.encode())


def save(path, value):
    """Saves tensors, numbers and texts, in lists and dicts, after a line with their checksum.

    PyTorch's reader checks no checksum.
    """
    buffer = io.BytesIO()
    torch.save(value, buffer)
    data = buffer.getvalue()
    write_bytes(path, HEAD + hashlib.sha256(data).hexdigest().encode() + b"\n" + data)


def load(path, what):
    """Returns the value that save() wrote. Raises DataError if a byte is wrong. The message calls the file `what`."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{error}. Expected {what}.") from None
    head, _, data = data.partition(b"\n")
    if head != HEAD + hashlib.sha256(data).hexdigest().encode():
        raise DataError(f"{path}: not {what}, or damaged: its checksum is wrong.")
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
