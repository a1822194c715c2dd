"""The training loop of many spiking networks at once: one CUDA graph holds one step."""

import time

import torch

from .batched_net import cross_entropy, distillation, forward, initial, predict
from .muon import Muon
from .processes import Processes


class Students:
    """`copies` networks in training on the same batches. Every random draw follows from `seed`.

    taught: the teachers' logits [variants, N, classes], whose part in the loss is `weight`; or None.
    processes: each takes its share of every batch, and all take the same step with the mean of their gradients.
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
            logits = forward(network, params, normalise(images), gradients)
            if taught is None:
                return cross_entropy(logits, labels)
            return weight * distillation(logits, taught, temperature) + (1 - weight) * cross_entropy(logits, labels)

        self.loss_of = torch.compile(loss_of) if compiled else loss_of
        self.graph, self.epoch, self.seconds = None, 0, 0.0

    def step(self):
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
        n = len(self.labels)
        self.order.copy_(torch.randperm(n, device=self.device, generator=self.generator)[: len(self.order)])
        self.variant.random_(0, self.augment.variants, generator=self.generator)
        self.position.zero_()
        self.loss_sum.zero_()

    def tensors(self):
        """{name: tensor} of all that a step changes and the next epoch does not set anew."""
        return {**self.params, **{f"optimiser.{n}": t for n, t in self.optimiser.tensors().items()}}

    def capture(self):
        """Records one step as a CUDA graph. Warm-up steps change state, so everything is put back afterwards."""
        state = [*self.tensors().values(), self.position, self.loss_sum]
        saved = [t.detach().clone() for t in state]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        # Threads of NCCL's own may call CUDA meanwhile.
        with torch.cuda.graph(self.graph, capture_error_mode="global" if self.processes.size == 1 else "thread_local"):
            self.step()
        with torch.no_grad():
            for t, s in zip(state, saved):
                t.copy_(s)

    def run_epoch(self):
        """One pass over the training images; the mean loss of a network."""
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
        """All that a resumed run needs to go on as if it had never stopped."""
        return {
            "tensors": {n: t.detach().cpu().clone() for n, t in self.tensors().items()},
            "generator": self.generator.get_state(),
            "epoch": self.epoch,
            "seconds": self.seconds,
        }

    @torch.no_grad()
    def restore(self, state):
        """Takes a state() of a run with the same settings; KeyError or RuntimeError where it is none."""
        own = self.tensors()
        if own.keys() != state["tensors"].keys():
            raise KeyError("other parameters")
        for name, tensor in own.items():
            if tensor.shape != state["tensors"][name].shape:
                raise RuntimeError(f"{name} of another shape")
            tensor.copy_(state["tensors"][name])
        self.generator.set_state(state["generator"])
        self.epoch, self.seconds = int(state["epoch"]), float(state["seconds"])

    def accuracy(self, images, labels):
        """Accuracy [S] of the networks on u8 images [N, H, W, C]."""
        if self.processes.size == 1:
            return (predict(self.network, self.params, images, self.normalise) == labels).float().mean(1)
        share = self.processes.share(len(labels))
        mine = slice(share.start, share.stop)
        right = torch.zeros(self.copies, dtype=torch.double, device=self.device)
        if len(share):
            right += (predict(self.network, self.params, images[mine], self.normalise) == labels[mine]).sum(1)
        return self.processes.sum(right) / len(labels)
