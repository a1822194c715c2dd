"""PyTorch on a GPU, for scripts that need one; where it or the GPU is absent the script ends with exit code 77."""

import sys

try:
    import torch
except ImportError:
    print("skipped: no PyTorch")
    sys.exit(77)
if not torch.cuda.is_available():
    print("skipped: no GPU")
    sys.exit(77)
