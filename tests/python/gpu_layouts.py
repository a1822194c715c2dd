"""On a GPU: every layout and type of x, weights and bias (layouts.py); weights that change; frozen ones.

Run by hand: python tests/python/gpu_layouts.py. Exit code 77: no GPU.
"""

import convoy.torch as ct
import layouts  # noqa: I001
from gpu_torch import torch

F = torch.nn.functional


def check_changes():
    """Each optimizer's step and each write is seen by the next call, on the default stream and another one."""
    text, x = "n1h9c64k64r3pad1", torch.randn(2, 64, 9, 10, device="cuda")
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad):
        for options in ({}, {"fused": True}, {"foreach": True}, {"capturable": True}):
            weight = torch.nn.Parameter(torch.randn(64, 64, 3, 3, device="cuda") / 24)
            weight.grad = torch.randn_like(weight)
            try:  # Adagrad has none that is fused or capturable on a GPU, and says so at times in its first step.
                optimizer = kind([weight], lr=0.05, **options)
                optimizer.step()
            except (TypeError, RuntimeError):
                continue
            for step in range(3):
                weight.grad = torch.randn_like(weight)
                optimizer.step()
                stream = torch.cuda.Stream() if step == 1 else torch.cuda.current_stream()
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream), torch.no_grad():
                    y = ct.stage(text, x, weight)
                    wanted = F.conv2d(x.double(), weight.double(), padding=1).float()
                stream.synchronize()
                torch.testing.assert_close(y, wanted, rtol=1e-3, atol=1e-3)
    weight = torch.randn(64, 64, 3, 3, device="cuda") / 24
    for _ in range(3):
        weight.data.mul_(-1.5)
        wanted = F.conv2d(x.double(), weight.double(), padding=1).float()
        torch.testing.assert_close(ct.stage(text, x, weight), wanted, rtol=1e-3, atol=1e-3)


check_changes()
layouts.check_refused("cuda")
print(layouts.check("cuda"), "layouts right")
