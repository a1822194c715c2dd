"""The training loop of many spiking networks at once: one CUDA graph holds one step."""

import time

import torch

from .batched_net import distillation_loss, forward, initial, predict
from .muon import Muon


class Students:
    """`copies` networks in training on the same batches. Every random draw follows from `seed`."""

    def __init__(self, augment, labels, taught, copies, seed, epochs, batch=250, compiled=False, alpha=2.0,
                 route="membrane", weight=0.9, temperature=3.0, **optimiser):  # fmt: skip
        self.augment, self.labels, self.taught = augment, labels, taught
        self.device, self.batch, self.epochs = labels.device, batch, epochs
        self.per_epoch = len(labels) // batch
        self.params = {n: p.requires_grad_() for n, p in initial(copies, seed, self.device).items()}
        self.optimiser = Muon(self.params, epochs * self.per_epoch, **optimiser)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.order = torch.zeros(self.per_epoch * batch, dtype=torch.long, device=self.device)
        self.variant = torch.zeros_like(self.order)
        self.position = torch.zeros((), dtype=torch.long, device=self.device)
        self.lane = torch.arange(batch, device=self.device)
        self.loss_sum = torch.zeros((), device=self.device)

        def loss_of(params, x, labels, taught):
            return distillation_loss(forward(params, x, alpha, route), labels, taught, weight, temperature)

        self.loss_of = torch.compile(loss_of) if compiled else loss_of
        self.graph, self.epoch, self.seconds = None, 0, 0.0

    def step(self):
        at = self.position * self.batch + self.lane
        index, variant = self.order[at], self.variant[at]
        x = self.augment(index, variant)
        loss = self.loss_of(self.params, x, self.labels[index], self.taught[variant, index])
        grads = torch.autograd.grad(loss, list(self.params.values()))
        self.optimiser.step(dict(zip(self.params, grads)))
        self.loss_sum += loss.detach()
        self.position += 1

    def shuffle(self):
        n = len(self.labels)
        self.order.copy_(torch.randperm(n, device=self.device, generator=self.generator)[: len(self.order)])
        self.variant.random_(0, self.augment.variants, generator=self.generator)
        self.position.zero_()
        self.loss_sum.zero_()

    def capture(self):
        """Records one step as a CUDA graph. Warm-up steps change state, so everything is put back afterwards."""
        state = [*self.params.values(), *(t for s in self.optimiser.state.values() for t in s)]
        state += [self.optimiser.count, self.position, self.loss_sum]
        saved = [t.detach().clone() for t in state]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()
        with torch.no_grad():
            for t, s in zip(state, saved):
                t.copy_(s)

    def run_epoch(self):
        """One pass over the training images; the mean loss of a network."""
        begin = time.perf_counter()
        if self.graph is None and self.device.type == "cuda":
            self.shuffle()
            self.capture()
        self.shuffle()
        for _ in range(self.per_epoch):
            self.graph.replay() if self.graph else self.step()
        self.epoch += 1
        loss = self.loss_sum.item() / self.per_epoch / len(self.params["conv1.bias"])
        self.seconds += time.perf_counter() - begin
        return loss

    def accuracy(self, images, labels):
        """Accuracy [S] of the networks on u8 images [N, 28, 28]."""
        return (predict(self.params, images) == labels).float().mean(1)
