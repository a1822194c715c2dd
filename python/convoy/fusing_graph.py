"""Puts spiking stages and networks of them into a model's graph, and compares them with the model's layers."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, fx, nn

from ._core import Error, InternalError, Plan, Stage
from .fusing_networks import SpikeNetwork
from .fusing_spikes import SpikeStage, charge_of, jelly, neuron_of, rest_of
from .layers import Refused, follower, plain, pool_of, sums_of, why_not_plain
from .records import a_kind
from .spiking import spike_form
from .torch import _DTYPES

# If a membrane is as near to the threshold as this part of the layer's largest sum, rounding decides its spike.
_NEAR = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}


class Spikes(NamedTuple):
    """The spikes on the sample that differ between fused stages and the model.

    Attributes:
        differ: The number of spikes that differ.
        of: The number of all spikes and non-spikes.
        images: The images that may differ: those with a membrane within rounding of its threshold.
    """

    differ: int
    of: int
    images: set[int]

    def __str__(self) -> str:
        """Returns the line of the report."""
        why = ", all after a membrane within rounding of its threshold" if self.differ else ""
        return f"spikes that differ on the sample: {self.differ} of {self.of}{why}"


class NeuronRefused(Refused):
    """The reason why a neuron stays with its library, and the neuron's node."""

    def __init__(self, node: fx.Node, reason: str) -> None:
        super().__init__(reason)
        self.node = node


class Found(NamedTuple):
    """A spiking stage of the graph: its nodes, from the convolution on."""

    stage: SpikeStage
    nodes: list[fx.Node]
    names: tuple[str, str, str]  # of the values: the stage's input, the neuron's input, the output
    plan: Plan
    text: str


def _step_mode(module: nn.Module, wanted: str) -> None:
    """Raises Refused if the module has another step mode than its neuron."""
    mode = getattr(module, "step_mode", "s")
    if mode != wanted:
        raise Refused(f"{type(module).__name__} in step_mode '{mode}', its neuron in '{wanted}'")


def _spiking(
    node: fx.Node, modules: dict[str, nn.Module], values: dict[str, Tensor], frozen: bool
) -> Found | None:
    """Returns the stage that begins at a convolution or linear layer, or None if no neuron follows it."""
    conv, norm, pool, pooling = modules[node.target], None, None, None
    linear = isinstance(conv, nn.Linear)
    nodes = [node]
    after, module = follower(node, modules)
    if after is not None and not linear and (jelly(module, "BatchNorm2d") or type(module) is nn.BatchNorm2d):
        norm = module
        nodes.append(after)
        after, module = follower(after, modules)
    home = type(module).__module__
    if after is None or module is None or not (jelly(module) and hasattr(module, "_memories") or "snntorch" in home):
        return None
    try:
        facts = neuron_of(module)
    except Refused as refused:
        raise NeuronRefused(after, str(refused)) from None
    neuron, neuron_node = module, after
    if type(conv) not in (nn.Conv2d, nn.Linear) and not jelly(conv, "Conv2d", "Linear"):
        raise Refused(f"{a_kind(conv)}, expected Conv2d or Linear")
    mode = "m" if facts.multi else "s"
    if not linear:  # a linear layer takes any axes
        _step_mode(conv, mode)
    if norm is not None:
        _step_mode(norm, mode)
        if norm.running_mean is None or norm.num_batches_tracked is None or norm.training:
            raise Refused("its BatchNorm2d has no statistics of its own, or is in training mode")
    if why := next(filter(None, (why_not_plain(module) for module in (conv, norm, neuron) if module is not None)), ""):
        raise Refused(why)
    nodes.append(after)
    after, module = follower(after, modules)
    if after is not None and not linear and jelly(module, "MaxPool2d") and module.step_mode == mode:
        if found := pool_of(after, module):
            pool, pooling = module, found
            nodes.append(after)
    elif not facts.multi and after is not None and not linear and (found := pool_of(after, module)):
        pool, pooling = module, found
        nodes.append(after)
    x = values.get(node.args[0].name) if node.args and isinstance(node.args[0], fx.Node) else None
    if x is None or len(node.args) != 1 or node.kwargs:
        raise Refused("its input is not passed by position, expected one positional tensor")
    if x.dtype not in _DTYPES:
        raise Refused(f"{x.dtype}, expected float32, float16 or bfloat16")
    axes = (2 if linear else 4) + facts.multi
    if x.dim() != axes:
        raise Refused(f"an input of {x.dim()} axes, {list(x.shape)}, expected {axes}")
    if pool is None and pooling is not None:
        raise Refused("a pool that is a function, expected a module")
    several = x if facts.multi else x[None]
    steps, n = several.shape[:2]
    h, w = (1, 1) if linear else several.shape[-2:]
    try:
        stage = Stage(**sums_of(conv), dtype=_DTYPES[x.dtype], n=n, h=h, w=w, act=facts.act, soft=facts.soft, t=steps,
                      hold=steps > 1 and several.stride(0) == 0, bias=conv.bias is not None or norm is not None,
                      pool=pooling)  # fmt: skip
        plan = Plan(stage, device=str(conv.weight.device), threads=torch.get_num_threads(), axes="nhwc")
    except Error as error:
        raise Refused(str(error).splitlines()[0]) from error
    names = node.args[0].name, neuron_node.args[0].name, nodes[-1].name
    return Found(SpikeStage(conv, norm, neuron, pool, stage, frozen), nodes, names, plan, str(stage))


def hold_inputs(graph: fx.Graph) -> None:
    """Replaces x.unsqueeze(0).repeat(T, 1, ..) by expand, which gives the same values without a copy."""
    for node in list(graph.nodes):
        if node.op != "call_method" or node.target != "repeat" or node.kwargs:
            continue
        sizes = node.args[1:] if len(node.args) != 2 or isinstance(node.args[1], int) else tuple(node.args[1])
        source = node.args[0]
        first = source.op == "call_method" and source.target == "unsqueeze" and source.args[1:] == (0,)
        if first and len(sizes) > 1 and all(size == 1 for size in sizes[1:]) and isinstance(sizes[0], int):
            node.target, node.args = "expand", (source, sizes[0], *[-1] * (len(sizes) - 1))


def replace_spiking(
    model: nn.Module, graph: fx.Graph, values: dict[str, Tensor], frozen: bool = False
) -> tuple[dict, list, list]:
    """Puts spiking stages into the graph.

    Returns (modules by name, rows of (nodes, text, kernel, reason), the stages found).
    """
    modules = dict(model.named_modules())
    placed: dict[str, nn.Module] = {}
    rows: list[tuple] = []
    every: list[Found] = []
    for node in list(graph.nodes):
        module = modules.get(node.target) if node.op == "call_module" else None
        if not isinstance(module, (nn.Conv2d, nn.Linear)) or not node.users:
            continue
        try:
            found = _spiking(node, modules, values, frozen)
        except Refused as refused:
            its = [node, refused.node] if isinstance(refused, NeuronRefused) else [node]
            rows.append((its if jelly(module) else its[-1:], "", "", str(refused)))
            continue
        if found is None:
            continue
        name = f"convoy_spikes{len(placed)}"
        placed[name] = found.stage
        with graph.inserting_before(node):
            made = graph.call_module(name, (node.args[0],))
        found.nodes[-1].replace_all_uses_with(made)
        values[made.name] = values[found.nodes[-1].name]
        for dead in reversed(found.nodes):
            graph.erase_node(dead)
        every.append(found)
        rows.append((found.nodes, found.text, found.plan.kernel, ""))
    return placed, rows, every


def is_mean_of_steps(node: fx.Node) -> bool:
    """Returns whether the node takes the mean over the time steps."""
    given = [*node.args[1:], *node.kwargs.values()]
    right = node.target == "mean" if node.op == "call_method" else node.target is torch.mean
    return right and given in ([0], [(0,)], [[0]])


def replace_networks(model: nn.Module, graph: fx.Graph, placed: dict[str, nn.Module],
                     values: dict[str, Tensor]) -> tuple[dict[str, SpikeNetwork], dict[SpikeStage, str]]:  # fmt: skip
    """Puts networks into the graph: one for each row of multi-step stages from a held input to the mean over the steps.

    Returns the networks by name, and the kernels of their stages.
    """
    modules = dict(model.named_modules()) | placed
    made: dict[str, SpikeNetwork] = {}
    kernels: dict[SpikeStage, str] = {}
    for node in list(graph.nodes):
        if node.op not in ("call_method", "call_function") or not is_mean_of_steps(node):
            continue
        parts: list[nn.Module] = []
        nodes: list[fx.Node] = []
        at = node.args[0]
        while isinstance(at, fx.Node) and at.op == "call_module" and len(at.users) == 1 and len(at.args) == 1:
            module = modules[at.target]
            between = jelly(module, "Flatten", "Dropout", "Dropout2d") and module.step_mode == "m" and plain(module)
            if not between and not (isinstance(module, SpikeStage) and module.facts.multi):
                break
            if jelly(module, "Flatten") and (module.start_dim, module.end_dim) != (1, -1):
                break
            parts.insert(0, module)
            nodes.insert(0, at)
            at = at.args[0]
        while parts and not isinstance(parts[0], SpikeStage):
            at = nodes[0]
            del parts[0], nodes[0]
        if sum(isinstance(part, SpikeStage) for part in parts) < 2:
            continue
        network = SpikeNetwork(parts)
        x = values[nodes[0].args[0].name]
        try:
            if not network.whole(x):
                continue
            layers = network.network(x).layers
        except Error:  # no network can be made, so each stage runs by itself
            continue
        kernels |= {stage: f"{layer.kernel}, in a network" for stage, layer in zip(network.stages, layers, strict=True)}
        name = f"convoy_network{len(made)}"
        made[name] = network
        with graph.inserting_before(node):
            new = graph.call_module(name, (nodes[0].args[0],))
        node.replace_all_uses_with(new)
        for dead in [node, *reversed(nodes)]:
            graph.erase_node(dead)
    return made, kernels


def _compared(found: Found, values: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Returns x, the model's spikes, and the inputs of its neuron, each [T, N, ..]."""
    several = [values[name] for name in found.names]
    x, sums, wanted = several if found.stage.facts.multi else [value[None] for value in several]
    return x, wanted, sums


def _near(found: Found, sums: Tensor, dtype: torch.dtype) -> Tensor:
    """Marks the spikes [T, N, ..] whose membrane was near the threshold in this or an earlier step."""
    stage, facts = found.stage, found.stage.facts
    bound = _NEAR[dtype] * max(facts.threshold, sums.abs().max().item())
    rest = rest_of(stage.neuron, list(sums[0].shape), sums)
    v = torch.zeros_like(sums[0]) if rest is None else rest.to(sums.dtype)
    near, masks = torch.zeros_like(sums[0], dtype=torch.bool), []
    for z in sums:
        h = charge_of(facts, v, z)
        s = (h >= facts.threshold).to(h.dtype)
        v = h - s * facts.threshold if facts.soft else h * (1 - s)
        near = near | ((h - facts.threshold).abs() <= bound)
        masks.append(near)
    mask = torch.stack(masks)
    if (pool := spike_form(stage.text).form.pool) is None:
        return mask
    return torch.nn.functional.max_pool2d(mask.flatten(0, 1).float(), *pool).unflatten(0, mask.shape[:2]) > 0


def _images(mask: Tensor) -> set[int]:
    """Returns the images with a mark."""
    return {int(image) for image in mask.flatten(2).any(2).any(0).nonzero().flatten()}


def compare_stage(found: Found, values: dict[str, Tensor]) -> Spikes:
    """Compares a stage, from rest and on the model's own input of it, with the model's spikes."""
    x, wanted, sums = _compared(found, values)
    y, _ = found.stage.run(x, rest_of(found.stage.neuron, found.stage.sizes(x), x))
    differs = y != wanted
    count = int(differs.sum())
    if not count:
        return Spikes(0, differs.numel(), set())
    wrong = int((differs & ~_near(found, sums, x.dtype)).sum())
    if wrong:
        raise InternalError(f"fuse: {wrong} spikes of {found.text} differ on the sample from the model's, and their "
                            "membranes are not near the threshold, expected equal spikes. Leave that part of the model "
                            "out, and report this.")  # fmt: skip
    return Spikes(count, differs.numel(), _images(differs))


def near_images(found: Found, values: dict[str, Tensor]) -> set[int]:
    """Returns the images in which a membrane comes near the threshold."""
    x, _, sums = _compared(found, values)
    return _images(_near(found, sums, x.dtype))


def batch_of(found: Found, values: dict[str, Tensor]) -> int:
    """Returns the number of images of the sample."""
    return _compared(found, values)[0].shape[1]
