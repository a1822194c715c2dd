"""Normalises and augments images on the device. Augmentation is a table look-up."""

import numpy as np
import torch


class Normalise:
    """Converts u8 images [..., C] to a network's input: (x / 255 - mean) / std in fp32."""

    def __init__(self, network, device):
        self.mean = torch.tensor(network.mean, dtype=torch.float32, device=device)
        self.std = torch.tensor(network.std, dtype=torch.float32, device=device)

    def __call__(self, images):
        return (images.float() / 255.0 - self.mean) / self.std


class Augmenter:
    """Flips and shifts images [N, H, W, C] with one gather: variant v of image i is `padded[i][offsets[v]]`.

    There are few variants (2 flips x (2 * shift + 1)^2), so a teacher's logits for each can be computed once and
    looked up in training. Shifts bring in zeros.
    """

    def __init__(self, images, shift, device):
        n, h, w, c = images.shape
        rows, columns = h + 2 * shift, w + 2 * shift
        self.shape = (h, w, c)
        padded = torch.zeros(n, rows, columns, c, dtype=torch.uint8, device=device)
        padded[:, shift : shift + h, shift : shift + w] = torch.from_numpy(np.ascontiguousarray(images)).to(device)
        self.images = padded.view(n, -1)
        grid = torch.arange(rows * columns * c, device=device).view(rows, columns, c)
        variants = []
        for top in range(2 * shift + 1):
            for left in range(2 * shift + 1):
                window = grid[top : top + h, left : left + w]
                variants += [window.reshape(-1), window.flip(1).reshape(-1)]
        self.offsets = torch.stack(variants)
        self.identity = 2 * (shift * (2 * shift + 1) + shift)

    @property
    def variants(self):
        """The number of variants of an image."""
        return len(self.offsets)

    def __call__(self, index, variant):
        """Returns u8 images [B, H, W, C]: the variants `variant` [B] of the images `index` [B]."""
        flat = index[:, None] * self.images.shape[1] + self.offsets[variant]
        return self.images.view(-1)[flat].view(-1, *self.shape)
