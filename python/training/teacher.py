"""The teacher: a small residual network, and a table of its logits for every variant of every training image."""

import torch
import torch.nn.functional as F
from torch import nn

from . import atomic
from .data import Augmenter
from .idx import DataError


def block(c_in, c_out):
    """Returns a convolution with batch-norm and ReLU."""
    return nn.Sequential(nn.Conv2d(c_in, c_out, 3, padding=1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU(inplace=True))


class Residual(nn.Module):
    """Two blocks whose result is added to their input."""

    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(block(channels, channels), block(channels, channels))

    def forward(self, x):
        return x + self.body(x)


class Teacher(nn.Module):
    """A network that maps u8 images [B, 28, 28, 1] to logits [B, 10]."""

    def __init__(self, width=64):
        super().__init__()
        w = width
        self.features = nn.Sequential(
            block(1, w), block(w, 2 * w), nn.MaxPool2d(2), Residual(2 * w),
            block(2 * w, 4 * w), nn.MaxPool2d(2), Residual(4 * w), nn.AdaptiveMaxPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(4 * w, 10, bias=False)

    def forward(self, x):
        x = (x.float() / 255.0 - 0.5) / 0.5
        return self.head(self.features(x.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last))) * 0.125


def cut_out(x, side, generator):
    """Sets a random square of `side` pixels of each image [B, 28, 28, 1] to the background's value, 0."""
    corner = torch.randint(0, 29 - side, (len(x), 2), device=x.device, generator=generator)
    at = torch.arange(28, device=x.device)
    inside = (at >= corner[:, :, None]) & (at < corner[:, :, None] + side)
    return x.masked_fill((inside[:, 0, :, None] & inside[:, 1, None, :])[..., None], 0)


def train_teacher(images, labels, epochs, seed, device, batch=500, width=64):
    """Trains a teacher with SGD and one cycle of the learning rate, in bf16 on a GPU, and returns it."""
    torch.manual_seed(seed)
    generator = torch.Generator(device).manual_seed(seed)
    augment = Augmenter(images, 2, device)
    labels = torch.from_numpy(labels.astype("int64")).to(device)
    net = Teacher(width).to(device, memory_format=torch.channels_last)
    steps = epochs * (len(labels) // batch)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.4, total_steps=steps, pct_start=0.25)
    for _ in range(epochs):
        order = torch.randperm(len(labels), device=device, generator=generator)
        for i in range(len(labels) // batch):
            index = order[i * batch : (i + 1) * batch]
            variant = torch.randint(0, augment.variants, (batch,), device=device, generator=generator)
            x = cut_out(augment(index, variant), 8, generator)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                logits = net(x)
            loss = F.cross_entropy(logits.float(), labels[index])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            schedule.step()
    return net.eval()


@torch.no_grad()
def teach(teachers, augment, count, batch=5000):
    """Returns the sum of the logits divided by `count`, for each variant and image: [variants, N, 10] fp32."""
    device = augment.images.device
    images = len(augment.images)
    table = torch.zeros(augment.variants, images, 10, device=device)
    for variant in range(augment.variants):
        for start in range(0, images, batch):
            index = torch.arange(start, min(start + batch, images), device=device)
            x = augment(index, torch.full_like(index, variant))
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                for net in teachers:
                    table[variant, index] += net(x).float()
    return table / count


def logits_of(teachers, images, batch=1000):
    """Returns the sum of the teachers' logits for u8 images [N, 28, 28, 1]."""
    with torch.no_grad():
        return torch.cat([sum(net(part) for net in teachers) for part in images.split(batch)])


def read_table(path, images, variants):
    """Returns the logits [variants, N, 10] that `teach` wrote. Raises DataError for another number of either."""
    saved = atomic.load(path, "a file that `teach` wrote")
    table = saved.get("table") if isinstance(saved, dict) else None
    found = tuple(table.shape) if isinstance(table, torch.Tensor) else None
    if found != (variants, images, 10):
        raise DataError(
            f"{path}: logits of shape {found}, expected {(variants, images, 10)} (variants, training images, classes). "
            "Pass the same --limit and --shift as when it was made."
        )
    return table
