"""convoy.export: writes a PyTorch or SpikingJelly model as a model folder, for convoy.Network and the program."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, fx, nn

from . import model_folder
from ._core import Error, FileError, Network, Stage
from .fusing import _Shapes, _Stage, replace_plain, traced
from .fusing_compare import compare
from .fusing_graph import hold_inputs, is_mean_of_steps, near_images, replace_spiking
from .fusing_sample import check_values, computed
from .fusing_spikes import SpikeStage, States, jelly
from .layer_names import layer_names, shown
from .records import a_kind
from .torch import folded


def _refuse(name: str, why: str) -> Error:
    """Returns the Error for a layer that a model folder cannot hold."""
    return Error(f"export: {shown(name)}: {why}. A model folder holds a sequence of layers: Conv2d [BatchNorm2d] "
                 "[activation or neuron] [MaxPool2d], Flatten, Linear [activation or neuron]. Export the parts without "
                 "other layers and branches, or use convoy.fuse, which leaves these to PyTorch.")  # fmt: skip


def _flat(node: fx.Node, module: Any) -> bool:
    """Returns whether the node flattens all axes after the first."""
    if isinstance(module, nn.Flatten):
        return (module.start_dim, module.end_dim) == (1, -1)
    return node.target in (torch.flatten, "flatten") and [*node.args[1:], *node.kwargs.values()] in ([1], [1, -1])


def _line(stage: _Stage | SpikeStage, name: str) -> tuple[str, dict[str, Tensor]]:
    """Returns the layer's line of network.txt, and its parameters with the batch-norm folded in."""
    if isinstance(stage, SpikeStage):
        weight, bias = stage.weights()
    else:
        conv, norm = stage.conv, stage.norm
        weight, bias = conv.weight, conv.bias
        if norm is not None:
            weight, bias = folded(weight, bias, norm.weight, norm.bias, norm.running_mean, norm.running_var,
                                  norm.num_batches_tracked, norm.eps)  # fmt: skip
    parameters = {f"{name}.weight": weight.flatten(1) if stage.linear else weight}
    if bias is not None:
        parameters[f"{name}.bias"] = bias
    return f"{name} {Stage(stage.text).layer_text(stage.linear)}", parameters


def _image(x: Tensor, steps: bool) -> tuple[int, ...]:
    """Returns channels, height and width of x [[T,] N, C [, H, W]]."""
    sizes = tuple(x.shape[1 + steps :])
    return sizes if len(sizes) == 3 else (sizes[0], 1, 1)


def export(model: nn.Module, folder: str | os.PathLike, sample: Tensor, *, form: str = "safetensors",
           pixels: bool = False, mean: Any = None, std: Any = None) -> Network:  # fmt: skip
    """Writes a model as a model folder and returns it as a Network, read back from the folder.

    The folder has network.txt and the weights, with batch-norms folded in. The network is compared with the model on
    the sample before anything is written. docs/use/model-folders.md describes the folder.

    Args:
        model: A module in eval mode: a sequence of layers without branches. If it returns the outputs of all time
            steps, the network returns their mean.
        folder: The folder to write, a path.
        sample: A tensor of images [N, C, H, W] or [N, C] in f32. For a model that takes the time steps itself:
            [T, N, ...], with the same images in each step.
        form: "safetensors": one file for all parameters. "text": one text file per parameter.
        pixels: The network reads u8 images. False: it reads f32 images, as the model does.
        mean: With `pixels`, one number or one per channel: the model's input is (pixels / 255 - mean) / std.
        std: With `pixels`, one number or one per channel.

    Returns:
        The `Network`.

    Raises:
        Error: The model has a layer that a model folder cannot hold (the message names it), an argument is wrong, or
            the network's results differ from the model's.

    Example:
        >>> import convoy, tempfile, torch
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     network = convoy.export(model.eval(), folder, torch.rand(2, 1, 8, 8))
        >>> [layer.name for layer in network.layers]
        ['0', '2']
    """
    if not isinstance(model, nn.Module):
        raise Error(f"model: {a_kind(model)}, expected a torch.nn.Module.")
    if model.training:
        raise Error("model: it is in training mode, expected eval mode. Call model.eval() first.")
    if not isinstance(sample, Tensor):
        raise Error(f"sample: {a_kind(sample)}, expected a tensor of images [N, C, H, W] or [N, C].")
    if sample.dtype is not torch.float32:
        raise Error(f"sample: {sample.dtype}, expected float32. Export model.float() with sample.float().")
    if form not in ("safetensors", "text"):
        raise Error(f"form: {form!r}, expected 'safetensors' or 'text'.")
    if (mean is not None or std is not None) and not pixels:
        raise Error("mean, std: given without pixels=True, expected None. A network of f32 images gives them to the "
                    "model as they are. Leave mean and std out, or pass pixels=True.")  # fmt: skip
    check_values(model, sample)
    states = States(model)
    try:
        with torch.no_grad():
            return _exported(model, folder, sample, states, form, {"pixels": pixels, "mean": mean, "std": std})
    finally:
        states.restore()


class _Traced:
    """A model's graph with stages in place of layers, and the value of every node on the sample."""

    def __init__(self, model: nn.Module, sample: Tensor, states: States) -> None:
        self.graph = traced(model, "Export a part of it that can be traced.")
        states.reset()
        self.output = computed(model, self.graph, lambda: (sample,))
        states.reset()
        hold_inputs(self.graph)
        shapes = _Shapes(model, self.graph, True)
        shapes.run(sample)
        states.reset()
        self.values = shapes.seen
        spiking, told, self.found = replace_spiking(model, self.graph, self.values)
        taken = {node.name for nodes, *_ in told for node in nodes}
        plain, rows = replace_plain(model, self.graph, self.values, True, taken)
        for nodes, _, _, reason in told:
            if reason:
                raise _refuse(" ".join(str(node.target) for node in nodes), reason)
        for row in rows:
            if row.reason:
                raise _refuse(row.names, row.reason)
        self.modules = dict(model.named_modules()) | spiking | plain
        self.names = {id(module): name or "layer" for name, module in model.named_modules()}

    def module(self, node: fx.Node) -> nn.Module | None:
        """Returns the module that the node calls, if it calls one."""
        return self.modules.get(node.target) if node.op == "call_module" else None

    def near(self) -> set[int]:
        """Returns the images with a membrane near its threshold: another order of additions may change a spike."""
        return set().union(*(near_images(one, self.values) for one in self.found)) if self.found else set()


class _Text:
    """network.txt and its parameters, built layer by layer.

    If the model takes the time steps itself, `several` is true and `steps` is their number.
    """

    def __init__(self, traced: _Traced) -> None:
        self.lines: list[str] = []
        self.parameters: dict[str, Tensor] = {}
        self.image = (0, 0, 0)  # channels, height, width
        self.steps, self.several, self.mean_taken = 1, False, False
        self._traced = traced
        modules = [traced.module(node) for node in traced.graph.nodes]
        self._names = layer_names(traced.names[id(module.conv)] for module in modules
                                  if isinstance(module, (_Stage, SpikeStage)))  # fmt: skip
        for node in traced.graph.nodes:
            self._add(node, traced.module(node))
        if self.parameters and self.lines[-1] == "flatten":
            raise _refuse("Flatten", "no layer follows it, expected Linear")

    def _add(self, node: fx.Node, module: Any) -> None:
        """Adds the layer of a node. Raises Error if a model folder cannot hold it."""
        if node.op == "placeholder" and node.prev.op == "placeholder":
            raise _refuse(node.name, "a second input of the model, expected one input")
        if len(node.users) > 1:
            readers = ", ".join(shown(reader.name) for reader in node.users)
            raise _refuse(node.name, f"it is read by {len(node.users)} layers ({readers}), expected 1")
        if node.op in ("placeholder", "output") or isinstance(module, (nn.Dropout, nn.Identity)):
            return
        if jelly(module, "Dropout", "Dropout2d"):
            return
        if node.op == "call_method" and node.target in ("unsqueeze", "expand") and not self.lines:
            return
        if isinstance(module, (_Stage, SpikeStage)):
            self._add_stage(node, module)
        elif _flat(node, module):
            self._add_flatten(self._traced.values[node.args[0].name], module)
        elif node.op in ("call_method", "call_function") and is_mean_of_steps(node):
            self.mean_taken = True
        else:
            raise _refuse(str(node.target), a_kind(module) if module is not None else node.op)

    def _add_stage(self, node: fx.Node, module: _Stage | SpikeStage) -> None:
        """Adds the line and the parameters of a stage."""
        x, name = self._traced.values[node.args[0].name], self._traced.names[id(module.conv)]
        if isinstance(module, SpikeStage) and module.facts.multi and not self.several:
            if self.lines or (x.shape[0] > 1 and x.stride(0) != 0):
                raise _refuse(node.name, "an input of its own in each step, expected the same input in every step")
            self.steps, self.several = x.shape[0], True
        elif self.several and isinstance(module, _Stage):
            raise _refuse(name, "a layer without time steps after a spiking layer, expected a spiking layer")
        if not self.lines:
            self.image = _image(x, self.several)
            if module.linear:
                self.lines.append("flatten")
        line, more = _line(module, self._names[name])
        if more.keys() & self.parameters.keys():  # names are unique, so the layer is the same
            raise _refuse(name, "called a second time, expected one call per layer. Give the model a copy of it")
        self.lines.append(line)
        self.parameters |= more

    def _add_flatten(self, x: Tensor, module: Any) -> None:
        """Adds the line `flatten`, and takes the image's size from x if no layer comes before."""
        if not self.lines:
            self.several = x.dim() == 5 or (jelly(module) and module.step_mode == "m")
            self.steps = x.shape[0] if self.several else 1
            self.image = _image(x, self.several)
        self.lines += ["flatten"] * ("flatten" not in self.lines)

    def text(self, pixels: bool, mean: Any, std: Any) -> str:
        """Returns network.txt."""
        ride = "".join(f" {word}({','.join(f'{v:.9g}' for v in torch.as_tensor(value).flatten().tolist())})"
                       for word, value in (("mean", mean), ("std", std)) if value is not None)  # fmt: skip
        c, h, w = self.image
        text = f"input {'u8' if pixels else 'f32'}:h{h}w{w}c{c}{ride}\n" + f"steps {self.steps}\n" * self.several
        return text + "\n".join(self.lines) + "\n"


def _compare(traced: _Traced, said: _Text, arrays: dict[str, Any], sample: Tensor) -> None:
    """Compares the network's outputs with the model's on f32 images. Raises Error if they differ."""
    # A network takes [N, H, W, C] on the host.
    image = (sample[0] if said.several and sample.dim() in (3, 5) else sample).cpu()
    image = image.reshape(len(image), *said.image).permute(0, 2, 3, 1).contiguous()
    given = Network.from_text(said.text(False, None, None), arrays)(image)
    given = torch.from_dlpack(given) if not isinstance(given, Tensor) else given
    wanted = traced.output if said.mean_taken or not said.several else traced.output.mean(0)
    if wanted.dim() == 4:  # a network gives [N, H, W, C], flattened
        wanted = wanted.permute(0, 2, 3, 1)
    compare(wanted.flatten(1), given.to(wanted.device), None, len(image), traced.near())


def _exported(model: nn.Module, folder: Any, sample: Tensor, states: States, form: str,
              inputs: dict[str, Any]) -> Network:  # fmt: skip
    """Traces the model, compares the network with it and writes the folder."""
    traced = _Traced(model, sample, states)
    said = _Text(traced)
    if not said.parameters:
        raise _refuse(type(model).__name__, "it has no layers, expected at least one")
    if traced.found and not said.several:
        raise _refuse(type(model).__name__, "neurons in step_mode 's', expected 'm', with the input of every step")
    text = said.text(**inputs)
    arrays = {name: tensor.detach().float().cpu().numpy() for name, tensor in said.parameters.items()}
    # The network is tried before anything is written.
    Network.from_text(text, arrays)
    _compare(traced, said, arrays, sample)
    try:
        model_folder.write(folder, text, arrays, form)
    except OSError as error:
        raise FileError(f"{error.filename}: {error.strerror}. Name a folder that this user may write to.") from error
    return Network(os.fspath(folder))
