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
            write_bytes(folder / f"{name}.txt", lines.encode())
        (folder / "model.safetensors").unlink(missing_ok=True)
    biases = {name.removesuffix(".weight") + ".bias" for name in values if name.endswith(".weight")}
    for name in biases | set(values):  # also the bias of a former network in this folder
        (folder / f"{name}.npy").unlink(missing_ok=True)
        if form == "safetensors" or name not in values:
            (folder / f"{name}.txt").unlink(missing_ok=True)
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
    if (path := folder / f"{name}.txt").exists():
        # As in convoy.Network, numbers are separated by any white space and read as double first.
        values = np.array(path.read_text("utf-8-sig").split(), np.float64)
    elif (path := folder / f"{name}.npy").exists():
        values = np.load(path, allow_pickle=False)
    elif whole.exists() and name in (tensors := read_safetensors(whole)):
        path, values = whole, tensors[name]
    else:
        raise ValueError(f"{folder}: no parameter {name}, expected {name}.txt, {name}.npy or model.safetensors.")
    if values.size != np.prod(shape):
        raise ValueError(f"{path}: {values.size} values of {name}, expected {list(shape)}.")
    return values.astype(np.float32).reshape(shape)
