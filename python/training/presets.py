"""Recipes by name: the default values of the options of `train`."""

OURS = {
    "epochs": 400,
    "batch": 250,
    "teachers": 3,
    "shift": 1,
    "lr": 0.02,
    "adam_lr": 0.01,
    "weight_decay": 0.03,
    "warmup": 0.02,
    "surrogate": "atan",
    "alpha": 1.5,
    "route": "membrane",
    "through_reset": False,
    "seed": 100,
    "seeds": 16,
}

# A published recipe for this network. Its script keeps SpikingJelly's defaults: a sigmoid of steepness 4 as surrogate,
# gradients through the reset, and the pool's gradient to the first of equal spikes. It trains one network, of seed 42,
# with cross-entropy only. Two things differ here: the cosine falls with each step instead of each epoch, and an epoch's
# last, smaller batch is left out.
DOCUMENT = {
    "epochs": 1000,
    "batch": 2048,
    "teachers": 0,
    "shift": 0,
    "lr": 0.02,
    "adam_lr": 0.01,
    "weight_decay": 0.01,
    "warmup": 0.0,
    "surrogate": "sigmoid",
    "alpha": 4.0,
    "route": "first",
    "through_reset": True,
    "seed": 42,
    "seeds": 1,
}

PRESETS = {"ours": OURS, "document": DOCUMENT}


def fill(args):
    """Sets options that were not given to the preset's values, and returns the arguments."""
    for name, value in PRESETS[args.preset].items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    return args
