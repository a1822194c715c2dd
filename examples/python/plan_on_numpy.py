"""One stage on NumPy arrays: a plan, its result, and the reason for its kernel.

    python examples/python/plan_on_numpy.py        needs NumPy
"""

import numpy as np

import convoy

stage = convoy.Stage(n=8, h=32, c=64, k=128, r=3, pad=1, bias=True, act="relu", pool=2)
rng = np.random.default_rng(0)
weights = rng.standard_normal(stage.w_shape, np.float32)
plan = convoy.Plan(stage, weights)
x, bias = rng.standard_normal(stage.x_shape, np.float32), np.zeros(stage.k, np.float32)

y = plan(x, bias)  # a new array
out = np.empty_like(y)
plan.run(x[:3], bias, out=out[:3])  # fewer images, into memory of your own
print(f"{stage}: {x.shape} -> {y.shape}, the same bits for fewer images: {np.array_equal(out[:3], y[:3])}")
print(plan.explain())
