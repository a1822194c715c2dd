"""Reads and writes the parameters of a model folder: text files, or one model.safetensors."""

import importlib.util
from pathlib import Path

import numpy as np
import torch

from .idx import DataError


def _package_file(name):
    """Returns a module of the package convoy without importing the package, whose extension may not be built."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "convoy" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


model_folder = _package_file("model_folder")


def write_model(folder, network, params, form):
    """Writes network.txt and {'conv1.weight': tensor, ...}, as convoy.export does. form: "text" or "safetensors"."""
    values = {name: p.detach().cpu().float().numpy() for name, p in params.items()}
    model_folder.write(folder, network.text, values, form)


def read_safetensors(path):
    """Returns {name: fp32 array} of a file that write_model wrote."""
    try:
        return model_folder.read_safetensors(path)
    except ValueError as error:
        raise DataError(str(error)) from None


def read_weights(folder, network):
    """Returns the parameters in a model folder, as a state dict for SpikingNet."""
    folder, state = Path(folder), {}
    whole = folder / "model.safetensors"
    tensors = read_safetensors(whole) if whole.exists() else {}
    for name, shape in network.shapes.items():
        path = folder / f"{model_folder.file_name(name)}.txt"
        if name in tensors:
            path, values = whole, tensors[name]
        else:
            try:
                values = np.loadtxt(path, dtype=np.float32, ndmin=1)
            except (OSError, ValueError) as error:
                raise DataError(f"{path}: {error}. Expected one number per line.") from None
        if values.size != np.prod(shape):
            raise DataError(
                f"{path}: {name} has {values.size} values, expected {np.prod(shape)} for shape {shape}. "
                "Check whether the file was cut short."
            )
        state[name] = torch.from_numpy(values.reshape(shape).copy())
    return state
