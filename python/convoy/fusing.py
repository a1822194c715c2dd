"""convoy.fuse: a model of PyTorch whose convolutions run as stages, with what follows them."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from ._core import Error, InvalidOperand, Plan
from .fusing_changes import Watch
from .fusing_compare import compare
from .fusing_graph import (
    Spikes,
    batch_of,
    compare_stage,
    hold_inputs,
    near_images,
    replace_networks,
    replace_spiking,
)
from .fusing_sample import check_values, computed
from .fusing_spikes import States, jelly, leaf
from .layers import Refused, act_of, conv_text, follower, plain, pool_of, steady
from .records import a_kind
from .torch import _DTYPES, called

__all__ = ["Fused", "Report", "Row", "fuse"]


class Row(NamedTuple):
    """A convolution, linear layer or pool of the model: what became of it."""

    names: str
    stage: str
    kernel: str
    reason: str  # why it was not fused; "" where it was


class Report(NamedTuple):
    """What fuse did; seen as a table.

    difference: the largest on the sample; scale: the largest value there. spikes: of spiking stages, how many differ,
    each on the model's own input of it. images: of the sample's `batch`, whose results differ for that reason.
    """

    rows: list[Row]
    difference: float
    scale: float
    spikes: Spikes | None = None
    images: tuple[int, ...] = ()
    batch: int = 0

    def __str__(self) -> str:
        cells = [("layers", "stage", "kernel")]
        cells += [(row.names, row.stage or "-", row.kernel or "not fused: " + row.reason) for row in self.rows]
        widths = [max(len(row[column]) for row in cells) for column in range(2)]
        lines = [f"{a:{widths[0]}}  {b:{widths[1]}}  {c}" for a, b, c in cells]
        lines.append(f"largest difference on the sample: {self.difference:.3g} of {self.scale:.3g}")
        if self.spikes is not None:
            lines.append(f"{self.spikes}; images whose results differ: {len(self.images)} of {self.batch}")
        return "\n".join(lines)

    __repr__ = __str__


class _Stage(nn.Module):
    """A chain of the model's layers as one stage. It reads the layers' own parameters, whatever they are now."""

    def __init__(self, layers: list[Any], conv: nn.Module, norm: nn.Module | None, text: str) -> None:
        super().__init__()
        self.conv, self.norm, self.text, self.layers = conv, norm, text, layers
        self.linear = isinstance(conv, nn.Linear)

    def forward(self, x: Tensor) -> Tensor:
        conv, norm = self.conv, self.norm
        if not isinstance(x, Tensor):  # PyTorch would print all of it
            raise InvalidOperand(f"x: {a_kind(x)}, expected a torch.Tensor")
        # Statistics of the batch, float64 and inputs without a batch axis: the layers themselves.
        if (norm is not None and norm.training) or x.dtype not in _DTYPES or x.dim() != (2 if self.linear else 4):
            return self.by_layers(x)
        if norm is None:
            if not self.linear:
                return called(x, conv.weight, conv.bias, self.text)
            y = called(x[:, :, None, None], conv.weight[:, :, None, None], conv.bias, self.text)
            return torch.ops.aten._unsafe_view(y, [y.shape[0], y.shape[1]])  # no view, as a linear layer's is none
        return torch.ops.convoy.stage_norm(x, conv.weight, conv.bias, norm.weight, norm.bias, norm.running_mean,
                                           norm.running_var, norm.num_batches_tracked, norm.eps, self.text)  # fmt: skip

    def by_layers(self, x: Tensor) -> Tensor:
        y = self.conv(x) if self.norm is None else self.norm(self.conv(x))
        for layer in self.layers:
            if isinstance(layer, nn.Module):
                y = layer(y)
            else:
                kind, target, rest, named = layer
                y = getattr(y, target)(*rest, **named) if kind == "call_method" else target(y, *rest, **named)
        return y


class Fused(nn.Module):
    """The model with stages in it: the same call, parameters, buffers and state_dict. In training mode it is the model.

    original: the model. report: what was fused.
    """

    def __init__(self, original: nn.Module, graph: fx.Graph, stages: dict[str, nn.Module], report: Report,
                 watch: Watch) -> None:  # fmt: skip
        super().__init__()
        self.__dict__.update(original=original, report=report, _graph=graph, _stages=stages, _watch=watch)
        # The model's own, not copies: whoever moves, loads or trains one has done so with the other.
        for name in ("_modules", "_parameters", "_buffers", "_non_persistent_buffers_set"):
            self.__dict__[name] = original.__dict__[name]
        self.training = original.training
        self._build()

    def _build(self) -> None:
        holder = dict(self.original.named_modules()) | self._stages
        names = [node.target for node in self._graph.nodes if node.op == "call_module"]
        read = [node.target for node in self._graph.nodes if node.op == "get_attr"]
        attributes = {name: operator.attrgetter(name)(self.original) for name in read}
        self.__dict__["_attributes"] = attributes
        self.__dict__["_runner"] = fx.GraphModule({name: holder[name] for name in names} | attributes, self._graph)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        if self.training:
            return self.original(*arguments, **named)
        if torch.compiler.is_compiling():
            return self._runner(*arguments, **named)
        self._watch.check()
        if self._attributes:
            # Parameters and buffers that the graph itself reads: the model may have others by now.
            now = ((operator.attrgetter(name)(self.original), value) for name, value in self._attributes.items())
            if any(one is not other for one, other in now):
                self._build()
        return self._runner(*arguments, **named)

    def train(self, mode: bool = True) -> Fused:
        self.original.train(mode)
        self.training = mode
        return self

    def _apply(self, *arguments: Any, **named: Any) -> Fused:
        self.original._apply(*arguments, **named)
        self._build()
        return self


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return super().is_leaf_module(m, module_qualified_name) or leaf(m)


def traced(model: nn.Module, remedy: str) -> fx.Graph:
    whole = {"_orig_mod": "compiled", "_c": "a script"}
    if found := next((word for name, word in whole.items() if hasattr(model, name)), None):
        raise Error(f"model: {a_kind(model)}, {found}, whose layers torch.fx does not see; expected the model itself. "
                    "Pass that, and compile or trace what comes out.")  # fmt: skip
    try:
        return _Tracer().trace(model)
    except Exception as error:
        raise Error(f"model: {a_kind(model)} that torch.fx cannot trace: {error}. Expected a forward without "
                    f"control flow on values or sizes. {remedy}") from error  # fmt: skip


class _Shapes(fx.Interpreter):
    """Runs the graph and notes each node's shape and type."""

    def __init__(self, root: nn.Module, graph: fx.Graph, values: bool) -> None:
        super().__init__(root, graph=graph)
        self.seen: dict[str, Tensor] = {}
        self.values = values  # keeps them too: what spiking stages are compared with

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, Tensor) and self.values:
            self.seen[n.name] = result
        elif isinstance(result, Tensor):
            self.seen[n.name] = torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device="meta")
        return result


def _head(seen: dict[str, Tensor], node: fx.Node, linear: bool) -> str:
    x = seen.get(node.args[0].name) if node.args and isinstance(node.args[0], fx.Node) else None
    if x is None:
        raise Refused("its input is no positional tensor")
    if x.dtype not in _DTYPES:
        raise Refused(f"{x.dtype}; stages are of float32, float16 and bfloat16")
    if x.dim() != (2 if linear else 4):
        axes = "[N, C]" if linear else "[N, C, H, W]"
        raise Refused(f"an input of {x.dim()} axes, {list(x.shape)}; expected {axes}")
    n, _, h, w = (*x.shape, 1, 1) if linear else x.shape
    return f"{_DTYPES[x.dtype]}:n{n}h{h}w{w}"


def _chain(
    node: fx.Node, modules: dict[str, nn.Module], head: str, device: torch.device
) -> tuple[list[fx.Node], nn.Module | None, str, Plan]:
    """The longest run of layers from node on that one stage does: its nodes, the norm, the text, the plan."""
    conv = modules[node.target]
    linear = type(conv) is nn.Linear
    body = f"c{conv.in_features}k{conv.out_features}r1" if linear else conv_text(conv)
    nodes, norm, act, texts = [node], None, "", []

    def note(pool: str = "") -> None:
        bias = conv.bias is not None or norm is not None
        text = head + body + "+bias" * bias + (act and "+" + act) + (pool and "+" + pool)
        texts.append((list(nodes), norm, text))

    note()
    after, module = follower(node, modules)
    if after is not None and not linear and steady(module):
        norm = module
        nodes.append(after)
        note()
        after, module = follower(after, modules)
    if after is not None and (rider := act_of(after, module)):
        act = rider
        nodes.append(after)
        note()
        after, module = follower(after, modules)
    if after is not None and not linear and (pool := pool_of(after, module)):
        nodes.append(after)
        note(pool)
    problem = None
    for several, its_norm, text in reversed(texts):  # where the whole is refused, less of it
        try:
            plan = Plan(text, device=str(device), threads=torch.get_num_threads(), axes="nchw")
            return several, its_norm, str(plan.stage), plan
        except Error as error:
            problem = problem or error
    raise Refused(str(problem).splitlines()[0])


_WATCHED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.Linear, nn.MaxPool2d, nn.BatchNorm2d)
_FUNCTIONS = (torch.conv2d, nn.functional.conv2d, nn.functional.linear)


def _name(node: fx.Node) -> str:
    return str(node.target) if node.op in ("call_module", "call_method") else node.name


def replace_plain(
    model: nn.Module, graph: fx.Graph, seen: dict[str, Tensor], linear: bool, told: set[str]
) -> tuple[dict[str, nn.Module], list[Row]]:
    """Puts stages into the graph. told: nodes that the report has already."""
    modules = dict(model.named_modules())
    stages: dict[str, nn.Module] = {}
    rows: list[Row] = []
    for node in list(graph.nodes):
        module = modules.get(node.target) if node.op == "call_module" else None
        if node.op == "call_function" and node.target in _FUNCTIONS:
            alone = type(model) in (nn.Conv2d, nn.Linear)
            reason = "a function, as the layer is the model itself; fuse nn.Sequential(model)" if alone else (
                "a function; stages are of the modules Conv2d and Linear")  # fmt: skip
            rows.append(Row(node.name, "", "", reason))
        if not isinstance(module, _WATCHED):
            continue
        try:
            if not node.users:
                continue  # part of a chain, or nobody's
            if jelly(module) and node.name in told:
                continue
            if jelly(module):
                raise Refused("no neuron comes right behind it" if isinstance(module, (nn.Conv2d, nn.Linear))
                              else "it comes behind no stage that takes it")
            if type(module) not in (nn.Conv2d, nn.Linear):
                raise Refused(f"{a_kind(module)} that no Conv2d comes right before" if
                               type(module) in (nn.MaxPool2d, nn.BatchNorm2d) else
                               f"{a_kind(module)}; stages are of Conv2d and Linear")  # fmt: skip
            if type(module) is nn.Linear and not linear:
                raise Refused("linear=False")
            if not plain(module):
                raise Refused("it has hooks, which would not be called")
            text = _head(seen, node, type(module) is nn.Linear)
            chain, norm, text, plan = _chain(node, modules, text, module.weight.device)
        except Refused as refused:
            rows.append(Row(_name(node), "", "", str(refused)))
            continue
        layers = [modules[n.target] if n.op == "call_module" else (n.op, n.target, n.args[1:], n.kwargs)
                  for n in chain[1 + (norm is not None) :]]  # fmt: skip
        name = f"convoy_stage{len(stages)}"
        stages[name] = _Stage(layers, module, norm, text)
        with graph.inserting_before(node):
            made = graph.call_module(name, (node.args[0],))
        chain[-1].replace_all_uses_with(made)
        seen[made.name] = seen[chain[-1].name]
        for dead in reversed(chain):
            graph.erase_node(dead)
        rows.append(Row(" ".join(map(_name, chain)), text, plan.kernel, ""))
    return stages, rows


def _views_to_reshapes(graph: fx.Graph) -> None:
    """Stages give channels_last tensors, of which x.view(n, -1) is refused; of others a reshape is that view."""
    for node in graph.nodes:
        of_type = any(isinstance(argument, torch.dtype) for argument in node.args[1:])
        if node.op == "call_method" and node.target in ("view", "view_as") and not of_type and not node.kwargs:
            node.target = "reshape" + node.target.removeprefix("view")


def fuse(model: nn.Module, sample: Any, *, linear: bool = True, tolerance: float | None = None,
         show: bool = True) -> Fused:  # fmt: skip
    """The model with Conv2d [BatchNorm2d] [activation] [MaxPool2d], and Linear [activation], as stages.

    model: in eval mode. sample: its input, a tensor or a tuple of arguments, of a typical size; other sizes are
    planned when they come. Activations: ReLU, ReLU6, Hardtanh, LeakyReLU. linear: fuse Linear too.
    tolerance: the largest difference allowed on the sample, as a part of the largest value; None: by type.
    show: print the report, which is fused.report too.

    The result shares the model's parameters and has its state_dict; changed weights are packed again at the next call.
    In training mode it runs the model itself. Raises Error: a model in training mode, one that torch.fx cannot
    trace, a sample that it does not take, or a result that differs on the sample.

    >>> import convoy, torch
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)).eval()
    >>> fused = convoy.fuse(model, torch.zeros(1, 3, 8, 8), show=False)
    >>> fused.report.rows[0].names, fused.report.rows[0].stage
    ('0 1 2', 'n1h8w8c3k8r3pad1+bias+relu+max2')
    """
    if not isinstance(model, nn.Module):
        raise Error(f"model: {a_kind(model)}, expected a torch.nn.Module")
    if model.training:
        raise Error("model: in training mode, expected eval mode. Call model.eval() first: a batch-norm is fused with "
                    "the statistics that it has gathered.")  # fmt: skip
    arguments = sample if isinstance(sample, tuple) else (sample,)
    if not any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(arguments)):
        raise Error(f"sample: {a_kind(sample)}, expected a tensor, or a tuple of the model's arguments")
    if tolerance is not None and not tolerance >= 0:
        raise Error(f"tolerance: {tolerance}, expected 0 or more, a part of the largest value")
    check_values(model, arguments)
    graph = traced(model, "Fuse those of its parts that can be traced, as in "
                          "model.features = convoy.fuse(model.features, sample_of_it).")  # fmt: skip
    states = States(model)
    try:
        with torch.no_grad():
            fused = _fused(model, graph, arguments, states, linear, tolerance)
    finally:
        states.restore()
    if show:
        print(fused.report)
    return fused


def _fused(model: nn.Module, graph: fx.Graph, arguments: tuple, states: States, linear: bool,
           tolerance: float | None) -> Fused:  # fmt: skip
    def own() -> Any:  # a model may write its input
        return pytree.tree_map(lambda v: v.clone() if isinstance(v, Tensor) and 0 not in v.stride() else v, arguments)

    states.reset()
    wanted = computed(model, graph, own)
    states.reset()
    before = {node.name: node.target for node in graph.nodes if node.op == "call_module"}
    hold_inputs(graph)
    shapes = _Shapes(model, graph, bool(states.modules))
    shapes.run(*own())
    states.reset()
    order = {_name(node): place for place, node in reversed(list(enumerate(graph.nodes)))}
    spiking, told, found = replace_spiking(model, graph, shapes.seen)
    networks, kernels = replace_networks(model, graph, spiking, shapes.seen)
    stages, rows = replace_plain(model, graph, shapes.seen, linear, {node.name for nodes, *_ in told for node in nodes})
    if stages or spiking:
        _views_to_reshapes(graph)
    graph.lint()
    of_text = {id(one.nodes): one.stage for one in found}
    for nodes, text, kernel, reason in told:
        kernel = kernels.get(of_text.get(id(nodes)), kernel)
        rows.append(Row(" ".join(map(_name, nodes)), text, kernel, reason))
    rows.sort(key=lambda row: order.get(row.names.split()[0], 0))
    left = {node.name for node in graph.nodes}
    watch = Watch(model, set(before.values()), {target for name, target in before.items() if name not in left})
    fused = Fused(model, graph, stages | spiking | networks, Report(rows, 0, 0), watch)
    spikes, n = None, 0
    if found:
        first = {id(one.stage.neuron): one for one in reversed(found)}.values()  # of several calls of a neuron
        counted = [compare_stage(one, shapes.seen) for one in first]
        images = set().union(*(one.images for one in counted))
        spikes = Spikes(sum(one.differ for one in counted), sum(one.of for one in counted), images)
        n = batch_of(found[0], shapes.seen)
        if networks:  # its sums are in another order than its stages'
            images = images.union(*(near_images(one, shapes.seen) for one in first))
    else:
        images = set()
    difference, scale, differing = compare(wanted, fused(*arguments), tolerance, n, images)
    fused.__dict__["report"] = Report(rows, difference, scale, spikes, tuple(sorted(differing)), n)
    return fused
