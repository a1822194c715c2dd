"""Puts stages into a model's graph, for convolutions and linear layers with the layers that follow them."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from . import _core
from ._core import Error, InvalidOperand, Plan
from .fusing_sample import Constants
from .fusing_spikes import jelly
from .layers import Refused, act_of, follower, hooked, pool_of, steady, sums_of, why_not_plain
from .records import a_kind
from .torch import _DTYPES, called, called_norm


class Row(NamedTuple):
    """A line of the report: layers that became a stage, or a layer that PyTorch still runs.

    Attributes:
        names: The names of the layers, with blanks between them.
        stage: The stage's text; "" if the layer was not fused.
        kernel: The stage's kernel for the sample; "" if the layer was not fused.
        reason: Why the layer was not fused; "" if it was.
    """

    names: str
    stage: str
    kernel: str
    reason: str


class Stage(nn.Module):
    """A chain of the model's layers as one stage. At each call it reads the layers' own parameters."""

    def __init__(
        self, layers: list[Any], conv: nn.Module, norm: nn.Module | None, text: str, frozen: bool = False
    ) -> None:
        super().__init__()
        # These are plain attributes, which Python finds faster than those of a module: they are read at each call.
        self.__dict__.update(conv=conv, norm=norm, text=text, layers=layers)
        self.rest = (True,) if frozen else ()  # the operators' last argument
        self.linear = isinstance(conv, nn.Linear)

    def forward(self, x: Tensor) -> Tensor:
        """Computes the stage, or the layers themselves if a stage cannot."""
        conv, norm = self.conv, self.norm
        if not isinstance(x, Tensor):  # PyTorch would print all of it
            raise InvalidOperand(f"x: {a_kind(x)}, expected a torch.Tensor.")
        # The layers themselves compute statistics of the batch, float64, and inputs without a batch axis.
        if (norm is not None and norm.training) or x.dtype not in _DTYPES or x.dim() != (2 if self.linear else 4):
            return self.by_layers(x)
        if norm is None:
            if not self.linear:
                return called(x, conv.weight, conv.bias, self.text, *self.rest)
            y = called(x[:, :, None, None], conv.weight[:, :, None, None], conv.bias, self.text, *self.rest)
            return torch.ops.aten._unsafe_view(y, [y.shape[0], y.shape[1]])  # as a linear layer's result, not a view
        return called_norm(x, conv.weight, conv.bias, norm.weight, norm.bias, norm.running_mean, norm.running_var,
                           norm.num_batches_tracked, norm.eps, self.text, *self.rest)  # fmt: skip

    __call__ = forward  # a stage has no hooks: fuse refuses hooks on all modules

    def by_layers(self, x: Tensor) -> Tensor:
        """Returns the result of the layers themselves."""
        y = self.conv(x) if self.norm is None else self.norm(self.conv(x))
        for layer in self.layers:
            if isinstance(layer, nn.Module):
                y = layer(y)
            else:
                kind, target, rest, named = layer
                y = getattr(y, target)(*rest, **named) if kind == "call_method" else target(y, *rest, **named)
        return y

    def rebound(self, modules: dict[int, nn.Module]) -> Stage:
        """Returns the stage with other modules: `modules` has the new ones by the id of the old ones."""
        made = copy.copy(self)
        for name in ("conv", "norm"):
            made.__dict__[name] = modules.get(id(made.__dict__[name]), made.__dict__[name])
        made.__dict__["layers"] = [modules.get(id(layer), layer) for layer in self.layers]
        return made


class Shapes(Constants):
    """Runs the graph and records each node's shape and type."""

    def __init__(self, root: nn.Module, graph: fx.Graph, values: bool) -> None:
        super().__init__(root, graph=graph)
        self.seen: dict[str, Tensor] = {}
        self.values = values  # whether values are kept too, to compare spiking stages with

    def run_node(self, n: fx.Node) -> Any:
        """Runs a node and records its result."""
        result = super().run_node(n)
        if isinstance(result, Tensor) and self.values:
            self.seen[n.name] = result
        elif isinstance(result, Tensor):
            self.seen[n.name] = torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device="meta")
        return result


def _input(seen: dict[str, Tensor], node: fx.Node, linear: bool) -> dict[str, Any]:
    """Returns the keywords of the stage for the type and sizes of its input."""
    x = seen.get(node.args[0].name) if node.args and isinstance(node.args[0], fx.Node) else None
    if x is None:
        raise Refused("its input is not passed by position, expected one positional tensor")
    if x.dtype not in _DTYPES:
        raise Refused(f"{x.dtype}, expected float32, float16 or bfloat16")
    if x.dim() != (2 if linear else 4):
        axes = "[N, C]" if linear else "[N, C, H, W]"
        raise Refused(f"an input of {x.dim()} axes, {list(x.shape)}, expected {axes}")
    n, _, h, w = (*x.shape, 1, 1) if linear else x.shape
    return dict(dtype=_DTYPES[x.dtype], n=n, h=h, w=w)


def chain_of(
    node: fx.Node, modules: dict[str, nn.Module], given: dict[str, Any], device: torch.device
) -> tuple[list[fx.Node], nn.Module | None, str, Plan]:
    """Returns the longest chain of layers that one stage computes: its nodes, the batch-norm, the text, the plan.

    given: the keywords of the stage for its input.
    """
    conv = modules[node.target]
    linear = type(conv) is nn.Linear
    keywords = given | sums_of(conv) | dict(bias=conv.bias is not None)
    nodes, norm, chains = [node], None, []

    def note(**more: Any) -> None:
        """Adds the chain so far, after adding to the keywords."""
        keywords.update(more)
        chains.append((list(nodes), norm, dict(keywords)))

    note()
    after, module = follower(node, modules)
    if after is not None and not linear and steady(module):
        norm = module
        nodes.append(after)
        note(bias=True)
        after, module = follower(after, modules)
    if after is not None and (act := act_of(after, module)):
        nodes.append(after)
        note(act=act)
        after, module = follower(after, modules)
    if after is not None and not linear and (pool := pool_of(after, module)):
        nodes.append(after)
        note(pool=pool)
    problem = None
    for several, its_norm, its_keywords in reversed(chains):  # if the whole chain is refused, try less of it
        try:
            stage = _core.Stage(**its_keywords)
            plan = Plan(stage, device=str(device), threads=torch.get_num_threads(), axes="nchw")
            return several, its_norm, str(plan.stage), plan
        except Error as error:
            problem = problem or error
    raise Refused(str(problem).splitlines()[0])


_WATCHED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.Linear, nn.MaxPool2d, nn.BatchNorm2d)
_FUNCTIONS = (torch.conv2d, nn.functional.conv2d, nn.functional.linear)


def _whole(module: nn.Module) -> str:
    """Returns why PyTorch runs a module that the graph calls as a whole; "" if it has no layers of interest."""
    if not any(isinstance(one, _WATCHED) for one in module.modules()):
        return ""
    if hooked(module):
        return "it has hooks, which are called as before; PyTorch runs all layers in it"
    if hasattr(module, "_convoy_fused"):
        return "a fused model, which has stages of its own"
    if jelly(module):
        return (f"{a_kind(module)}, which SpikingJelly runs with all layers in it, expected layers in step_mode 'm' "
                "(functional.set_step_mode) without such a container")  # fmt: skip
    return f"{a_kind(module)}, which runs as a whole, expected the modules Conv2d and Linear"


def _why_alone(module: nn.Module) -> str:
    """Returns why no stage begins at this layer or has taken it in."""
    if type(module) not in (nn.MaxPool2d, nn.BatchNorm2d):
        return f"{a_kind(module)}, expected Conv2d or Linear"
    if why := why_not_plain(module):
        return why
    if type(module) is nn.BatchNorm2d and module.running_mean is None:
        return f"{a_kind(module)} that computes statistics of each batch, expected track_running_stats=True"
    return f"{a_kind(module)} with no Conv2d right before it"


def name_of(node: fx.Node) -> str:
    """Returns the name of a node in the report."""
    return str(node.target) if node.op in ("call_module", "call_method") else node.name


def replace_plain(
    model: nn.Module, graph: fx.Graph, seen: dict[str, Tensor], linear: bool, told: set[str], frozen: bool = False
) -> tuple[dict[str, nn.Module], list[Row]]:
    """Puts stages into the graph. Returns them by name, and lines of the report. told: nodes that the report has."""
    modules = dict(model.named_modules())
    stages: dict[str, nn.Module] = {}
    rows: list[Row] = []
    for node in list(graph.nodes):
        module = modules.get(node.target) if node.op == "call_module" else None
        if node.op == "call_function" and node.target in _FUNCTIONS:
            alone = type(model) in (nn.Conv2d, nn.Linear)
            reason = "a function, as the layer is the model itself; fuse nn.Sequential(model)" if alone else (
                "a function, expected the modules Conv2d and Linear")  # fmt: skip
            rows.append(Row(node.name, "", "", reason))
        if not isinstance(module, _WATCHED):
            if module is not None and node.name not in told and (why := _whole(module)):
                rows.append(Row(name_of(node), "", "", why))
            continue
        try:
            if not node.users:
                continue  # a part of a chain, or without a reader
            if node.name in told:
                continue
            if jelly(module):
                raise Refused("no neuron comes right after it" if isinstance(module, (nn.Conv2d, nn.Linear))
                              else "no stage that takes it comes before it")
            if type(module) not in (nn.Conv2d, nn.Linear):
                raise Refused(_why_alone(module))
            if type(module) is nn.Linear and not linear:
                raise Refused("linear=False")
            if why := why_not_plain(module):
                raise Refused(why)
            given = _input(seen, node, type(module) is nn.Linear)
            chain, norm, text, plan = chain_of(node, modules, given, module.weight.device)
        except Refused as refused:
            rows.append(Row(name_of(node), "", "", str(refused)))
            continue
        layers = [modules[n.target] if n.op == "call_module" else (n.op, n.target, n.args[1:], n.kwargs)
                  for n in chain[1 + (norm is not None) :]]  # fmt: skip
        name = f"convoy_stage{len(stages)}"
        stages[name] = Stage(layers, module, norm, text, frozen)
        with graph.inserting_before(node):
            made = graph.call_module(name, (node.args[0],))
        chain[-1].replace_all_uses_with(made)
        seen[made.name] = seen[chain[-1].name]
        for dead in reversed(chain):
            graph.erase_node(dead)
        rows.append(Row(" ".join(map(name_of, chain)), text, plan.kernel, ""))
    return stages, rows


def views_to_reshapes(graph: fx.Graph) -> None:
    """Replaces view by reshape: PyTorch refuses x.view(n, -1) of the channels_last tensors that stages return."""
    for node in graph.nodes:
        of_type = any(isinstance(argument, torch.dtype) for argument in node.args[1:])
        if node.op == "call_method" and node.target in ("view", "view_as") and not of_type and not node.kwargs:
            node.target = "reshape" + node.target.removeprefix("view")
