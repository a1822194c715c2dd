"""The processes of one training run, as `torchrun` starts them: each trains the same networks on its share of a batch.

Only process 0 reads and writes the run's folder. It tells the others the results, including errors.
"""

import os
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from .idx import DataError, ToldError

# One process may train a teacher while the others wait. If one dies, torchrun ends the others at once.
PATIENCE = timedelta(hours=6)


class Processes:
    """The `size` processes of a run; this one is number `rank`. A single process does not communicate."""

    def __init__(self, rank=0, size=1):
        self.rank, self.size = rank, size

    @property
    def leads(self):
        """Whether this is process 0."""
        return self.rank == 0

    def share(self, count):
        """Returns the indices of this process's part of `count` things, divided as evenly as possible."""
        return range(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def first(self, action):
        """Runs action() in process 0 and returns its result in all. A DataError is raised in all."""
        if self.size == 1:
            return action()
        found = [None, None]
        error = None
        if self.leads:
            try:
                found[0] = action()
            except DataError as caught:
                error, found[1] = caught, str(caught)
        dist.broadcast_object_list(found, src=0)
        if error:
            raise error
        if found[1] is not None:
            raise ToldError(found[1])
        return found[0]

    def tensor(self, make, shape, device):
        """Calls make() in process 0 and returns its fp32 tensor in all."""
        kept = []
        self.first(lambda: kept.append(make().to(device)))
        table = kept[0] if kept else torch.empty(shape, device=device)
        if self.size > 1:
            dist.broadcast(table, src=0)
        return table

    def sum(self, tensor):
        """Adds the other processes' tensors to `tensor` in place, and returns it."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def mean(self, tensors):
        """Returns the means of tensors over the processes, with one all-reduce for all tensors."""
        if self.size == 1:
            return tensors
        flat = self.sum(torch.cat([t.reshape(-1) for t in tensors])) / self.size
        return [part.view_as(t) for part, t in zip(flat.split([t.numel() for t in tensors]), tensors)]


def started():
    """Returns (rank, rank on this machine, number of processes) from torchrun's environment; without it (0, 0, 1)."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    if any(name not in os.environ for name in names):
        return 0, 0, 1
    try:
        return tuple(int(os.environ[name]) for name in names)
    except ValueError:
        raise DataError("RANK, LOCAL_RANK, WORLD_SIZE: expected numbers, as torchrun sets them.") from None


def starts():
    """Returns how many times torchrun restarted these processes because one had died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


@contextmanager
def joined(device):
    """Connects the processes while the body runs: with NCCL between GPUs, with gloo between CPUs."""
    rank, _, size = started()
    if size == 1:
        yield Processes()
        return
    gpu = device if device.type == "cuda" else None
    # torchrun's store outlives a restart, and PyTorch 2.15 finds dead processes' addresses in it: one prefix per start.
    store, _, _ = next(dist.rendezvous("env://", timeout=PATIENCE))
    store = dist.PrefixStore(f"start {starts()}", store)
    dist.init_process_group("nccl" if gpu else "gloo", store=store, rank=rank, world_size=size, timeout=PATIENCE,
                            device_id=gpu)  # fmt: skip
    try:
        yield Processes(rank, size)
    finally:
        dist.destroy_process_group()
