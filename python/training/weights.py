"""A model folder's parameters: a text file each, or all in model.safetensors."""

import json
import struct
from pathlib import Path

import numpy as np
import torch

from .atomic import write_bytes, write_text
from .idx import DataError


def write_model(folder, network, params, form):
    """Writes network.txt and {'conv1.weight': tensor, ...}; `form` is "text" or "safetensors".

    Text: one flattened file a parameter, with digits enough to read fp32 back.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    values = {name: np.ascontiguousarray(p.detach().cpu().float().numpy()) for name, p in params.items()}
    if form == "safetensors":
        write_bytes(folder / "model.safetensors", safetensors(values))
    else:
        for name, value in values.items():
            write_text(folder / f"{name}.txt", "".join(f"{v:.9g}\n" for v in value.reshape(-1).tolist()))
    write_text(folder / "network.txt", network.text)


def safetensors(values):
    """The bytes of such a file: the header's length, a JSON header, the tensors as they are."""
    header, at = {}, 0
    for name, value in values.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(v.astype("<f4").tobytes() for v in values.values())


def read_safetensors(path):
    """{name: fp32 array} of a file that write_model wrote."""
    raw = path.read_bytes()
    try:
        (length,) = struct.unpack("<Q", raw[:8])
        header = json.loads(raw[8 : 8 + length])
        return {
            name: np.frombuffer(raw[8 + length :][slice(*at["data_offsets"])], "<f4").reshape(at["shape"])
            for name, at in header.items()
            if name != "__metadata__"
        }
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: no safetensors file of fp32 ({error})") from None


def read_weights(folder, network):
    """The parameters in a model folder, as a state dict for SpikingNet."""
    folder, state = Path(folder), {}
    whole = folder / "model.safetensors"
    tensors = read_safetensors(whole) if whole.exists() else {}
    for name, shape in network.shapes.items():
        path = folder / f"{name}.txt"
        if name in tensors:
            path, values = whole, tensors[name]
        else:
            try:
                values = np.loadtxt(path, dtype=np.float32, ndmin=1)
            except (OSError, ValueError) as error:
                raise DataError(f"{path}: {error}") from None
        if values.size != np.prod(shape):
            raise DataError(
                f"{path}: {name} has {values.size} values, expected {np.prod(shape)} for shape {shape}. "
                "Was the file cut short?"
            )
        state[name] = torch.from_numpy(values.reshape(shape).copy())
    return state
