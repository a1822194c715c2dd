"""The training loop of many spiking networks together. One CUDA graph holds one step."""

import time

import torch

from .batched_net import cross_entropy, distillation, forward, initial, predict
from .muon import Muon
from .processes import Processes


class Students:
    """`copies` networks that are trained on the same batches. `seed` determines all random draws.

    taught: the teachers' logits [variants, N, classes], or None; `weight` is their part of the loss.
    processes: each process takes its share of every batch. All make the same step with the mean of their gradients.
    """

    def __init__(self, network, augment, normalise, labels, taught, copies, seed, epochs, batch, gradients,
                 compiled=False, gain=1.0, weight=0.9, temperature=3.0, processes=None, **optimiser):  # fmt: skip
        self.network, self.augment, self.normalise = network, augment, normalise
        self.labels, self.taught = labels, taught
        self.processes = processes or Processes()
        self.device, self.batch, self.epochs = labels.device, batch, epochs
        self.copies, self.per_epoch = copies, len(labels) // batch
        self.params = {n: p.requires_grad_() for n, p in initial(network, copies, seed, self.device, gain).items()}
        self.optimiser = Muon(self.params, epochs * self.per_epoch, **optimiser)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.order = torch.zeros(self.per_epoch * batch, dtype=torch.long, device=self.device)
        self.variant = torch.zeros_like(self.order)
        self.position = torch.zeros((), dtype=torch.long, device=self.device)
        share = self.processes.share(batch)
        self.lane = torch.arange(share.start, share.stop, device=self.device)
        self.loss_sum = torch.zeros((), device=self.device)

        def loss_of(params, images, labels, taught):
            """Returns the loss of a batch."""
            logits = forward(network, params, normalise(images), gradients)
            if taught is None:
                return cross_entropy(logits, labels)
            return weight * distillation(logits, taught, temperature) + (1 - weight) * cross_entropy(logits, labels)

        self.loss_of = torch.compile(loss_of) if compiled else loss_of
        self.graph, self.epoch, self.seconds = None, 0, 0.0

    def step(self):
        """Makes one step of training."""
        at = self.position * self.batch + self.lane
        index, variant = self.order[at], self.variant[at]
        taught = None if self.taught is None else self.taught[variant, index]
        loss = self.loss_of(self.params, self.augment(index, variant), self.labels[index], taught)
        grads = torch.autograd.grad(loss, list(self.params.values()))
        *grads, loss = self.processes.mean([*grads, loss.detach()])
        self.optimiser.step(dict(zip(self.params, grads)))
        self.loss_sum += loss
        self.position += 1

    def shuffle(self):
        """Draws the order and the variants of the images for an epoch."""
        n = len(self.labels)
        self.order.copy_(torch.randperm(n, device=self.device, generator=self.generator)[: len(self.order)])
        self.variant.random_(0, self.augment.variants, generator=self.generator)
        self.position.zero_()
        self.loss_sum.zero_()

    def tensors(self):
        """Returns, as {name: tensor}, the state that a step changes and the next epoch does not reset."""
        return {**self.params, **{f"optimiser.{n}": t for n, t in self.optimiser.tensors().items()}}

    def capture(self):
        """Records one step as a CUDA graph. Warm-up steps change the state, so the state is restored afterwards."""
        state = [*self.tensors().values(), self.position, self.loss_sum]
        saved = [t.detach().clone() for t in state]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        # NCCL's own threads may call CUDA meanwhile.
        with torch.cuda.graph(self.graph, capture_error_mode="global" if self.processes.size == 1 else "thread_local"):
            self.step()
        with torch.no_grad():
            for t, s in zip(state, saved):
                t.copy_(s)

    def run_epoch(self):
        """Makes one pass over the training images, and returns the mean loss of a network."""
        begin = time.perf_counter()
        if self.graph is None and self.device.type == "cuda":
            self.capture()
        self.shuffle()
        for _ in range(self.per_epoch):
            self.graph.replay() if self.graph else self.step()
        self.epoch += 1
        loss = self.loss_sum.item() / self.per_epoch / self.copies
        self.seconds += time.perf_counter() - begin
        return loss

    def state(self):
        """Returns the state that a resumed run needs to continue as if it had never stopped."""
        return {
            "tensors": {n: t.detach().cpu().clone() for n, t in self.tensors().items()},
            "generator": self.generator.get_state(),
            "epoch": self.epoch,
            "seconds": self.seconds,
        }

    @torch.no_grad()
    def restore(self, state):
        """Restores a state() of a run with the same settings. Raises KeyError or RuntimeError for another value."""
        own = self.tensors()
        if own.keys() != state["tensors"].keys():
            raise KeyError("other parameters than this network's")
        for name, tensor in own.items():
            if tensor.shape != state["tensors"][name].shape:
                raise RuntimeError(f"{name} has another shape")
            tensor.copy_(state["tensors"][name])
        self.generator.set_state(state["generator"])
        self.epoch, self.seconds = int(state["epoch"]), float(state["seconds"])

    def accuracy(self, images, labels):
        """Returns the accuracy [S] of the networks on u8 images [N, H, W, C]."""
        if self.processes.size == 1:
            return (predict(self.network, self.params, images, self.normalise) == labels).float().mean(1)
        share = self.processes.share(len(labels))
        mine = slice(share.start, share.stop)
        right = torch.zeros(self.copies, dtype=torch.double, device=self.device)
        if len(share):
            right += (predict(self.network, self.params, images[mine], self.normalise) == labels[mine]).sum(1)
        return self.processes.sum(right) / len(labels)
