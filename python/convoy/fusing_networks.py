"""Consecutive spiking stages of a fused model as one convoy.Network."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor, nn

from ._core import Error, Network, Stage
from .fusing_spikes import Later, SpikeStage, jelly
from .spiking import spike_form
from .weights import Seen

__all__ = ["SpikeNetwork"]


class _LeftBehind:
    """Computes the membranes of a network's layers after a run from rest, with the layers' own stages."""

    def __init__(self, chain: SpikeNetwork, x: Tensor) -> None:
        self.chain, self.x, self.found = chain, x, None
        self.seen = Seen(self.now())

    def now(self) -> list[Tensor]:
        """Returns the tensors that the membranes depend on."""
        return [self.x, *self.chain.tensors()]

    def membranes(self) -> list[Tensor]:
        """Returns the membranes of each stage. Raises Error if input or parameters have changed since the run."""
        if self.found is None:
            if not self.seen.same(self.now()):
                raise Error("v: the network's input or parameters have changed since it ran. Its membranes are lost. "
                            "Call functional.reset_net, or read v before you change them.")  # fmt: skip
            self.found = []
            with torch.no_grad():
                x = self.x
                for part in self.chain.parts:
                    if isinstance(part, SpikeStage):
                        x, after = part.run(x, None)
                        self.found.append(after.to(self.x.dtype))
                    else:
                        x = part(x)
            self.x = None
        return self.found


class SpikeNetwork(nn.Module):
    """Consecutive spiking stages on a held input, and the mean over the steps, as one convoy.Network.

    parts: the stages and the layers between them (Flatten, Dropout). The parts run one by one if the neurons are not at
    rest, if gradients are needed, or if the input is not held.
    """

    def __init__(self, parts: list[nn.Module]) -> None:
        super().__init__()
        stages = [part for part in parts if isinstance(part, SpikeStage)]
        self.__dict__.update(parts=parts, stages=stages, _made={}, _lock=threading.Lock())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": {}, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__["_lock"] = threading.Lock()

    def rebound(self, modules: dict[int, nn.Module]) -> SpikeNetwork:
        """Returns the network with other modules: `modules` has the new ones by the id of the old ones."""
        parts = [part.rebound(modules) if isinstance(part, SpikeStage) else modules.get(id(part), part)
                 for part in self.parts]  # fmt: skip
        return SpikeNetwork(parts)

    def tensors(self) -> list[Tensor]:
        """Returns the present parameters and statistics of all stages."""
        return [tensor for stage in self.stages for tensor in stage.parameters_now()]

    def text(self, x: Tensor) -> str:
        """Returns network.txt for x [T, N, ..]."""
        linear = x.dim() == 3
        h, w = (1, 1) if linear else x.shape[-2:]
        lines = [f"input f32:h{h}w{w}c{x.shape[2]}", f"steps {x.shape[0]}"] + ["flatten"] * linear
        for part in self.parts:
            if isinstance(part, SpikeStage):
                lines.append(f"layer{len(lines)} {Stage(part.text).layer_text(part.linear)}")
            elif jelly(part, "Flatten"):
                lines.append("flatten")
        return "\n".join(lines) + "\n"

    def network(self, x: Tensor) -> Network:
        """Returns the Network for x [T, N, ..], with the present parameters."""
        key = (x.shape[0], x.shape[2:], x.device, torch.get_num_threads())
        tensors = self.tensors()
        found = self._made.get(key)
        if found is not None and (self.stages[0].rest or found[0].same(tensors)):  # frozen, or unchanged
            return found[1]
        seen = Seen(tensors)
        text = self.text(x)
        names = [line.split()[0] for line in text.splitlines() if line.startswith("layer")]
        parameters: dict[str, Tensor] = {}
        for name, stage in zip(names, self.stages, strict=True):
            weight, bias = (None if t is None else t.detach().float().cpu() for t in stage.weights())
            parameters[f"{name}.weight"] = weight.flatten(1) if stage.linear else weight
            if bias is not None:
                parameters[f"{name}.bias"] = bias
        threads = torch.get_num_threads() if x.device.type == "cpu" else 0
        network = Network.from_text(text, parameters, device=str(x.device), threads=threads, openmp=True)
        self._made.clear()
        self._made[key] = (seen, network)
        return network

    def one_by_one(self, x: Tensor) -> Tensor:
        """Returns the mean over the steps after running the parts one by one."""
        for part in self.parts:
            x = part(x)
        return x.mean(0)

    def whole(self, x: Tensor) -> bool:
        """Returns whether the network can replace the parts for this x."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or x.dtype is not torch.float32:
            return False
        if torch.is_autocast_enabled(x.device.type) or x.dim() not in (3, 5) or x.numel() == 0:
            return False
        if x.shape[0] > 1 and x.stride(0) != 0:
            return False
        rest = all(not isinstance(stage.neuron.v, Tensor) and stage.neuron.v == 0 for stage in self.stages)
        return rest and not any(stage.norm is not None and stage.norm.training for stage in self.stages)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the mean over the steps, and sets the neurons' membranes to ones that are computed later."""
        for stage in self.stages:
            stage.check()
        if not self.whole(x):
            return self.one_by_one(x)
        image = x[0]
        image = image.reshape(len(image), 1, 1, -1) if image.dim() == 2 else image.movedim(1, -1)
        with self._lock:  # the first call makes the network
            y = self.network(x)(image.contiguous())
        left = _LeftBehind(self, x)
        for index, (stage, sizes) in enumerate(zip(self.stages, self.membrane_sizes(x), strict=True)):
            stage.neuron.v = Later(left, index, sizes, x)
            stage.neuron.v_seq = None
        return y

    def membrane_sizes(self, x: Tensor) -> list[list[int]]:
        """Returns the shape of each stage's membranes."""
        found, now = [], torch.empty(x.shape, device="meta")
        for part in self.parts:
            if not isinstance(part, SpikeStage):
                now = part(now)
                continue
            found.append(part.sizes(now))
            form = spike_form(part.text).form
            pooled = () if part.linear else form.sizes(*now.shape[-2:])
            now = torch.empty((*now.shape[:2], form.k, *pooled), device="meta")
        return found
