"""Images on the device: normalisation, and augmentation by table look-up."""

import numpy as np
import torch


class Normalise:
    """u8 images [..., C] as a network sees them: (x / 255 - mean) / std in fp32."""

    def __init__(self, network, device):
        self.mean = torch.tensor(network.mean, dtype=torch.float32, device=device)
        self.std = torch.tensor(network.std, dtype=torch.float32, device=device)

    def __call__(self, images):
        return (images.float() / 255.0 - self.mean) / self.std


class Augmenter:
    """Flips and shifts of images [N, H, W, C] as one gather: variant v of image i is `padded[i][offsets[v]]`.

    There are few variants (2 flips x (2 * shift + 1)^2), so what a teacher says about each can be computed once
    and looked up in training. Shifts bring in 0.
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
        return len(self.offsets)

    def __call__(self, index, variant):
        """Images [B, H, W, C] u8 of `index` [B] under `variant` [B]."""
        flat = index[:, None] * self.images.shape[1] + self.offsets[variant]
        return self.images.view(-1)[flat].view(-1, *self.shape)
