"""Reads and writes model folders. It needs NumPy, and no other module of the package."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a file atomically, through a temporary file: a reader sees the whole old file or the whole new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def file_name(name: str) -> str:
    """Returns a parameter's name as a part of a file's name: at most 220 bytes, without "/" and control characters.

    A name that has no such character and is not too long stays. In other names each such character, and a "%" that
    could be read as the start of one, becomes %XX. A longer name is cut, and a hash follows.
    src/core/file_name.cpp is the same function.

    Example:
        >>> file_name("conv1.weight"), file_name("layer1/conv:0.weight")
        ('conv1.weight', 'layer1%2Fconv:0.weight')
    """
    raw, parts, cut, size = name.encode(), [], 0, 0
    for at in range(len(raw)):
        byte, behind = raw[at : at + 1], raw[at + 1 : at + 3]
        escape = behind[:1] == b"~" or (len(behind) == 2 and all(one in b"0123456789abcdefABCDEF" for one in behind))
        if not 0x80 <= byte[0] < 0xC0 and size <= 202:
            cut = size
        if byte[0] < 0x20 or byte in b"\x7f/" or (byte == b"%" and escape):
            byte = b"%%%02X" % byte[0]
        parts.append(byte)
        size += len(byte)
    whole = b"".join(parts)
    if size > 220:
        number = 0xCBF29CE484222325  # FNV-1a of 64 bits
        for one in raw:
            number = (number ^ one) * 0x100000001B3 % (1 << 64)
        whole = whole[:cut] + b"%%~%016x" % number
    return whole.decode()


def safetensors(values: dict[str, Any]) -> bytes:
    """Returns the bytes of a safetensors file: the header's length, a JSON header, and the tensors in fp32."""
    header, at = {}, 0
    for name, value in values.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(v.astype("<f4").tobytes() for v in values.values())


def write(folder: str | os.PathLike, text: str, parameters: dict[str, Any], form: str = "safetensors") -> None:
    """Writes network.txt and the parameters to a folder.

    Text files have enough digits to read fp32 back. A parameter must be in one place only, so files of other forms are
    removed.

    Args:
        folder: The folder; it is made if it does not exist.
        text: The content of network.txt.
        parameters: Arrays by name, such as "conv1.weight". They are written in fp32.
        form: "safetensors": one file for all parameters. "text": one text file per parameter.

    Raises:
        ValueError: The form is unknown.
        OSError: A file cannot be written.
    """
    if form not in ("safetensors", "text"):
        raise ValueError(f"form: '{form}', expected 'safetensors' or 'text'.")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    values = {name: np.ascontiguousarray(value, np.float32) for name, value in parameters.items()}
    if form == "safetensors":
        write_bytes(folder / "model.safetensors", safetensors(values))
    else:
        for name, value in values.items():
            lines = "".join(f"{number:.9g}\n" for number in value.reshape(-1).tolist())
            write_bytes(folder / f"{file_name(name)}.txt", lines.encode())
        (folder / "model.safetensors").unlink(missing_ok=True)
    biases = {name.removesuffix(".weight") + ".bias" for name in values if name.endswith(".weight")}
    for name in biases | set(values):  # also the bias of a former network in this folder
        (folder / f"{file_name(name)}.npy").unlink(missing_ok=True)
        if form == "safetensors" or name not in values:
            (folder / f"{file_name(name)}.txt").unlink(missing_ok=True)
    write_bytes(folder / "network.txt", text.encode())


def _float32(data: bytes, dtype: str) -> Any:
    """Returns the values of a tensor in fp32."""
    if dtype == "BF16":  # the upper half of an fp32
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, {"F32": "<f4", "F16": "<f2"}[dtype]).astype(np.float32, copy=False)


def read_safetensors(path: Path) -> dict[str, Any]:
    """Returns the tensors of a file in fp32, by name. Raises ValueError for types other than F32, F16 and BF16."""
    raw = path.read_bytes()
    try:
        (length,) = struct.unpack("<Q", raw[:8])
        header, body = json.loads(raw[8 : 8 + length]), raw[8 + length :]
        return {
            name: _float32(body[slice(*at["data_offsets"])], at["dtype"]).reshape(at["shape"])
            for name, at in header.items()
            if name != "__metadata__"
        }
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: no safetensors file of F32, F16 or BF16 tensors ({error}).") from None


def read(folder: str | os.PathLike, name: str, shape: tuple[int, ...]) -> Any:
    """Returns a parameter from its text file, .npy file or model.safetensors. Raises ValueError or OSError."""
    folder = Path(folder)
    whole = folder / "model.safetensors"
    file = file_name(name)
    if (path := folder / f"{file}.txt").exists():
        # As in convoy.Network, numbers are separated by any white space and read as double first.
        values = np.array(path.read_text("utf-8-sig").split(), np.float64)
    elif (path := folder / f"{file}.npy").exists():
        values = np.load(path, allow_pickle=False)
    elif whole.exists() and name in (tensors := read_safetensors(whole)):
        path, values = whole, tensors[name]
    else:
        raise ValueError(f"{folder}: no parameter {name}, expected {file}.txt, {file}.npy or model.safetensors.")
    if values.size != np.prod(shape):
        raise ValueError(f"{path}: {values.size} values of {name}, expected {list(shape)}.")
    return values.astype(np.float32).reshape(shape)
