"""convoy.fuse: a PyTorch model whose convolutions run as stages, together with the layers that follow them."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from ._core import Error
from .fused import Fused
from .fusing_changes import Watch, without_hooks
from .fusing_compare import compare
from .fusing_graph import (
    Found,
    Spikes,
    batch_of,
    compare_stage,
    hold_inputs,
    near_images,
    replace_networks,
    replace_spiking,
)
from .fusing_report import Report
from .fusing_sample import check_values, computed
from .fusing_spikes import States
from .fusing_stages import Row, Shapes, Stage, name_of, replace_plain, views_to_reshapes
from .fusing_state import Snapshot
from .fusing_trace import refuse_written, traced
from .records import a_kind

__all__ = ["Fused", "Report", "Row", "fuse"]

_Shapes, _Stage = Shapes, Stage  # the names that exporting.py imports

_ADVICE = "each call compares all weights with the packed ones: for inference, fuse(..., frozen=True) is faster"


@contextlib.contextmanager
def _words(what: str) -> Iterator[None]:
    """Turns every exception in its body into an Error that says which part of fuse failed."""
    try:
        yield
    except (Error, torch.OutOfMemoryError):
        raise
    except Exception as error:
        text = (str(error).splitlines() or ["no text"])[0]
        raise Error(f"fuse: {what} failed on the sample: {type(error).__name__}: {text}. Expected a "
                    "graph that computes the same as the model. Fuse those of its parts that can be traced, as in "
                    "model.features = convoy.fuse(model.features, sample_of_it).") from error  # fmt: skip


def fuse(model: nn.Module, sample: Any, *, linear: bool = True, tolerance: float | None = None,
         show: bool = True, frozen: bool = False) -> Fused:  # fmt: skip
    """Returns a model whose convolutions run as stages, together with the layers that follow them.

    Conv2d [BatchNorm2d] [activation] [MaxPool2d] and Linear [activation] become stages. The activations are ReLU,
    ReLU6, Hardtanh and LeakyReLU. PyTorch still runs all other layers. Spiking models of SpikingJelly are fused too
    (docs/use/spiking.md).

    The result shares the model's parameters and has its state_dict. Weights that change are packed again at the next
    call. If anything else in the model changes after fusing, such as a layer, an attribute or a hook, the next call
    raises Error and names it.

    Args:
        model: A module in eval mode.
        sample: Its input: a tensor, or a tuple of arguments. Its sizes should be typical; plans for other sizes are
            made when they come.
        linear: Fuse Linear layers too.
        tolerance: The largest difference between model and fused model that is allowed on the sample, as a part of the
            largest value. None: depends on the type.
        show: Print the report.
        frozen: Pack the weights once, and do not look for changes.

    Returns:
        The fused model. Its attribute `report` has the table of stages.

    Raises:
        Error: The model is in training mode, torch.fx cannot trace it, its forward keeps something between calls, it
            does not take the sample, or the results on the sample differ. The model is left as it was.

    Example:
        >>> import convoy, torch
        >>> layers = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)
        >>> fused = convoy.fuse(torch.nn.Sequential(*layers).eval(), torch.zeros(1, 3, 8, 8), show=False)
        >>> fused.report.rows[0].names, fused.report.rows[0].stage
        ('0 1 2', 'n1h8w8c3k8r3pad1+bias+relu+max2')
    """
    if not isinstance(model, nn.Module):
        raise Error(f"model: {a_kind(model)}, expected a torch.nn.Module.")
    if model.training:
        raise Error("model: it is in training mode, expected eval mode. Call model.eval() first: a batch-norm is fused "
                    "with the statistics that it has gathered.")  # fmt: skip
    arguments = sample if isinstance(sample, tuple) else (sample,)
    if not any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(arguments)):
        raise Error(f"sample: {a_kind(sample)}, expected a tensor, or a tuple of the model's arguments.")
    if tolerance is not None and not tolerance >= 0:
        raise Error(f"tolerance: {tolerance}, expected 0 or more, a part of the largest value.")
    check_values(model, arguments)
    with _words("tracing"):
        graph = traced(model, "Fuse those of its parts that can be traced, as in "
                              "model.features = convoy.fuse(model.features, sample_of_it).", arguments)  # fmt: skip
    states = States(model)
    before = Snapshot(model)
    try:
        with torch.no_grad(), _words("the fused model"):
            fused = _fused(model, graph, arguments, states, linear, tolerance, before, frozen)
    finally:
        states.restore()
        before.restore()
    if show:
        print(fused.report)
    return fused


def _spikes_of(found: list[Found], seen: dict[str, Tensor], networks: Any) -> tuple[Spikes | None, int, set[int]]:
    """Returns the spikes of all spiking stages that differ, the batch, and the images whose results may differ."""
    if not found:
        return None, 0, set()
    first = {id(one.stage.neuron): one for one in reversed(found)}.values()  # of several calls of a neuron
    counted = [compare_stage(one, seen) for one in first]
    images = set().union(*(one.images for one in counted))
    spikes = Spikes(sum(one.differ for one in counted), sum(one.of for one in counted), images)
    if networks:  # a network may add in another order than its stages
        images = images.union(*(near_images(one, seen) for one in first))
    return spikes, batch_of(found[0], seen), images


def _watch(model: nn.Module, graph: fx.Graph, names: set[str], stages: dict[str, nn.Module]) -> Watch:
    """Returns the Watch of a fused model. names: the modules that the graph called before it had stages."""
    of = {id(module): name for name, module in model.named_modules()}
    inside, quiet, norms = set(), set(), set()
    for stage in stages.values():
        for part in getattr(stage, "stages", [stage]):
            its = [part.conv, part.norm, *part._modules.values()]
            its += [one for one in getattr(part, "__dict__", {}).get("layers", []) if isinstance(one, nn.Module)]
            its += [one for one in getattr(stage, "parts", []) if id(one) in of]
            inside |= {of[id(one)] for one in its if id(one) in of}
            quiet |= {of[id(one)] for one in [getattr(part, "neuron", None)] if id(one) in of}
            norms |= {of[id(one)] for one in [part.norm] if id(one) in of}
    left = {of[id(model.get_submodule(name))] for name in names} - inside - quiet
    return Watch(model, left, quiet, norms, inside, {name: operator.attrgetter(name)(model) for name in graph.baked})


def _fused(model: nn.Module, graph: fx.Graph, arguments: tuple, states: States, linear: bool,
           tolerance: float | None, before: Snapshot, frozen: bool) -> Fused:  # fmt: skip
    """Puts stages into the graph and compares the fused model with the model on the sample."""

    def own() -> Any:  # a model may write to its input
        return pytree.tree_map(lambda v: v.clone() if isinstance(v, Tensor) and 0 not in v.stride() else v, arguments)

    def again() -> None:  # each run starts from the same states and random numbers
        states.reset()
        before.restore_random()

    again()
    with without_hooks(model):
        wanted = computed(model, graph, own)
    if names := before.written():
        raise refuse_written(names, "when it is called")
    again()
    called = {node.target for node in graph.nodes if node.op == "call_module"}
    hold_inputs(graph)
    shapes = Shapes(model, graph, bool(states.modules))
    with without_hooks(model):
        shapes.run(*own())
    again()
    order = {name_of(node): place for place, node in reversed(list(enumerate(graph.nodes)))}
    spiking, told, found = replace_spiking(model, graph, shapes.seen, frozen)
    networks, kernels = replace_networks(model, graph, spiking, shapes.seen)
    taken = {node.name for nodes, *_ in told for node in nodes}
    stages, rows = replace_plain(model, graph, shapes.seen, linear, taken, frozen)
    if stages or spiking:
        views_to_reshapes(graph)
    graph.lint()
    of_text = {id(one.nodes): one.stage for one in found}
    for nodes, text, kernel, reason in told:
        kernel = kernels.get(of_text.get(id(nodes)), kernel)
        rows.append(Row(" ".join(map(name_of, nodes)), text, kernel, reason))
    rows.sort(key=lambda row: order.get(row.names.split()[0], 0))
    watch = _watch(model, graph, called, stages | spiking | networks)
    fused = Fused(model, graph, stages | spiking | networks, Report(rows, 0, 0), watch, arguments)
    spikes, n, images = _spikes_of(found, shapes.seen, networks)
    again()
    fused.__dict__["_watch"] = _Unwatched()
    try:
        with without_hooks(model):
            difference, scale, differing = compare(wanted, fused(*own()), tolerance, n, images)
    finally:
        fused.__dict__["_watch"] = watch
    on_gpu = any(parameter.is_cuda for parameter in model.parameters())
    fused.__dict__["report"] = Report(rows, difference, scale, spikes, tuple(sorted(differing)), n, frozen,
                                      "" if frozen or not on_gpu else _ADVICE)  # fmt: skip
    return fused


class _Unwatched:
    """Takes the place of the Watch while the sample runs: the model has not changed since."""

    def check(self) -> None:
        """Does nothing."""
        pass
