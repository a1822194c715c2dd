"""Files that are there whole or not at all, whenever the process or the machine stops."""

import hashlib
import io
import os
from pathlib import Path

import torch

from .idx import DataError

HEAD = b"convoy training 1 sha256 "


def replace(path, write):
    """Calls write(file) on a temporary file beside `path`, which then takes its name."""
    path = Path(path)
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_bytes(path, data):
    replace(path, lambda file: file.write(data))


def write_text(path, text):
    write_bytes(path, text.encode())


def save(path, value):
    """Tensors, numbers, texts in lists and dicts, behind a line with their checksum: torch's reader looks at none."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    data = buffer.getvalue()
    write_bytes(path, HEAD + hashlib.sha256(data).hexdigest().encode() + b"\n" + data)


def load(path, what):
    """What save() wrote; DataError that says it is not `what` where a byte is missing or another one."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{error}. Expected {what}") from None
    head, _, data = data.partition(b"\n")
    if head != HEAD + hashlib.sha256(data).hexdigest().encode():
        raise DataError(f"{path}: not {what}, or damaged: its checksum is wrong")
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
