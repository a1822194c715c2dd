#!/usr/bin/env python3
"""Trains the spiking networks of models/: many seeds together, chosen on validation images, tested once.

Each step is a subcommand:

    train_fashion.py check                          compares the fast form with SpikingJelly: logits and gradients
    train_fashion.py train --out run                trains teachers, then all seeds; --resume continues a stopped run
    train_fashion.py export run model               writes the best seed on the validation images as a model folder
    train_fashion.py evaluate model                 measures accuracy on the test images, with SpikingJelly on the CPU
    train_fashion.py images model folder            writes the test set in the form that `convoy run model` reads
    train_fashion.py table run...                   prints one line per run: mean and spread of validation accuracy
    train_fashion.py teach --out teachers.pt        trains only the teachers, for several runs of `train --taught`
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))
from training import presets  # noqa: E402

EXIT_INPUT = 2


def number(kind, least, text):
    """Returns the text as a number from `least` on."""
    value = kind(text)
    if not value >= least:
        raise argparse.ArgumentTypeError(f"{text}, expected {least} or more")
    return value


def positive(text):
    """Returns the text as a whole number of 1 or more."""
    return number(int, 1, text)


def count(text):
    """Returns the text as a whole number of 0 or more."""
    return number(int, 0, text)


def rate(text):
    """Returns the text as a number of 0 or more."""
    return number(float, 0, text)


def arguments():
    """Returns the command's arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)

    def mode(name, text, data=True):
        """Adds a subcommand."""
        sub = modes.add_parser(name, help=text, description=text)
        if data:
            sub.add_argument(
                "--data",
                help="folder of the IDX files; default: $CONVOY_DATA, the XDG data folder, Debian's package",
            )
        return sub

    def teaching(sub):
        """Adds the options that train teachers."""
        sub.add_argument(
            "--teacher-epochs", type=positive, default=15, help="passes over the images for each teacher; default: 15"
        )
        sub.add_argument("--device", help="cpu, cuda, cuda:1, ...; default: a GPU if there is one")
        sub.add_argument(
            "--limit", type=positive, help="use only this number of images, also for validation, for a trial"
        )

    train = mode("train", "train many seeds together")
    train.add_argument("--out", required=True, help="folder for checkpoints, log, results, networks and curves")
    train.add_argument("--resume", action="store_true", help="continue the stopped run in --out")
    train.add_argument(
        "--network", default=str(ROOT / "models/fashion-scnn"), help="network.txt or its folder; default: fashion-scnn"
    )
    train.add_argument("--steps", "--timesteps", type=positive, metavar="T", help="time steps; default: the network's")
    train.add_argument(
        "--preset", choices=presets.PRESETS, default="ours", help="recipe: default values of the options below"
    )

    def option(name, text, **kind):
        """Adds an option of `train` whose default value depends on the preset."""
        key = name.replace("-", "_")
        values = ", ".join(f"{preset} {value[key]}" for preset, value in presets.PRESETS.items())
        train.add_argument("--" + name, help=f"{text}; {values}", **kind)

    option("epochs", "passes over the training images", type=positive)
    option("seeds", "number of networks, trained together", type=positive)
    option("seed", "seed of the first network", type=int)
    option("batch", "images per step", type=positive)
    option("teachers", "residual networks whose logits are averaged; 0: train on labels only", type=count)
    option("shift", "shift images by at most this number of pixels, in addition to flips", type=count)
    option("lr", "learning rate of Muon, for the weights", type=rate)
    option("adam-lr", "learning rate of AdamW, for the biases", type=rate)
    option("weight-decay", "weight decay of both", type=rate)
    option("warmup", "share of the steps in which the learning rate rises", type=rate)
    option("surrogate", "form of the surrogate gradient", choices=("atan", "sigmoid"))
    option("alpha", "steepness of the surrogate", type=rate)
    option("route", "neuron that gets the gradient of a pool", choices=("membrane", "first"))
    option("through-reset", "let a gradient flow through the reset", action=argparse.BooleanOptionalAction)
    train.add_argument(
        "--gain", type=rate, default=1.0, help="factor for the range of the first weights; default: 1, as in PyTorch"
    )
    train.add_argument("--taught", help="file of the teachers' logits that `teach` wrote, instead of --teachers")
    train.add_argument("--every", type=positive, default=10, help="epochs between checkpoints; default: 10")
    train.add_argument(
        "--no-compile", action="store_true", help="do not use torch.compile: slower, with the same networks"
    )
    teaching(train)

    teach = mode("teach", "train teachers and write their logits for each variant of each image")
    teach.add_argument("--out", required=True, help="file to write")
    for name in ("teachers", "shift", "seed"):
        teach.add_argument("--" + name, type=count, default=presets.OURS[name], help=f"default: {presets.OURS[name]}")
    teaching(teach)

    table = mode(
        "table", "print the validation accuracy of runs: mean, standard deviation and best of their seeds", data=False
    )
    table.add_argument("runs", nargs="+", help="folders that `train` wrote")

    export = mode("export", "write one trained network as a model folder", data=False)
    export.add_argument("run", help="folder that `train` wrote")
    export.add_argument("model", help="folder to write network.txt and the weights to")
    export.add_argument(
        "--rank", type=positive, default=1, help="1: the network that is best on the validation images; default: 1"
    )
    export.add_argument(
        "--form", choices=("text", "safetensors"), default="text", help="form of the weights; default: text"
    )

    evaluate = mode("evaluate", "measure the accuracy of a model folder, with SpikingJelly on the CPU")
    evaluate.add_argument("model")
    evaluate.add_argument("--set", choices=("test", "validation"), default="test")
    evaluate.add_argument("--limit", type=positive, help="use only this number of images")
    evaluate.add_argument("--predictions", help="also save the predicted labels (u8) to this .npy file")

    images = mode("images", "write the test set in the form that `convoy run` reads for a model")
    images.add_argument("model")
    images.add_argument("folder", help="folder for t10k-images-idx<3 or 4>-ubyte.gz and t10k-labels-idx1-ubyte.gz")

    mode("check", "compare logits and gradients of the fast form and SpikingJelly, in double", data=False)
    return parser.parse_args()


ARGUMENTS = arguments() if __name__ == "__main__" else None  # before the imports below: --help does not need them

import numpy as np  # noqa: E402

from training import description, idx  # noqa: E402


def device_of(args):
    """Returns the device. Raises DataError if it is not usable."""
    import torch

    from training import processes

    _, local, size = processes.started()
    gpu = f"cuda:{local}" if size > 1 else "cuda"
    try:
        device = torch.device(args.device or (gpu if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=device)
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)  # streams and graphs are made on the current device
    except (RuntimeError, AssertionError) as error:
        raise idx.DataError(f"--device {args.device or gpu}: {str(error).splitlines()[0]}") from None
    return device


def training_images(args):
    """Returns ((images, labels), (validation images, labels)) of Fashion-MNIST, 28x28."""
    sets = idx.split(*idx.read_set(idx.find_folder(args.data), "train"))
    return [(images[: args.limit], labels[: args.limit]) for images, labels in sets] if args.limit else sets


def train(args):
    """Runs the subcommand `train`."""
    from training.session import train as session

    presets.fill(args)
    network = description.read(args.network, args.steps)
    session(args, network, device_of(args), *training_images(args))


def teach(args):
    """Runs the subcommand `teach`."""
    from training import atomic
    from training.session import make_table

    device = device_of(args)
    if args.teachers < 1:
        raise idx.DataError("--teachers 0: expected 1 or more.")
    settings = {k: v for k, v in sorted(vars(args).items()) if k not in ("mode", "out", "data", "device")}
    table = make_table(args, device, *training_images(args), lambda text: print(text, flush=True))
    atomic.save(args.out, {"table": table.cpu(), "settings": settings})


def results_of(run):
    """Returns (settings, validation accuracy by seed, students.npz, the network) of a complete run."""
    try:
        results = json.loads((run / "results.json").read_text())
        return results["settings"], results["validation"], np.load(run / "students.npz"), description.read(run)
    except OSError as error:
        raise idx.DataError(f"{error}. Expected the folder of a complete run of `train`.") from None
    except (ValueError, KeyError, TypeError) as error:
        raise idx.DataError(f"{run}: broken ({error}). Expected the folder of a run of `train`.") from None


def table(args):
    """Runs the subcommand `table`."""
    print("| run | T | epochs | seeds | mean, % | standard deviation | best |\n|---|---|---|---|---|---|---|")
    for run in args.runs:
        settings, scores, _, network = results_of(Path(run))
        values = 100 * np.array(scores)
        spread = f"{values.std(ddof=1):.2f}" if len(values) > 1 else "–"
        print(f"| {Path(run).name} | {network.steps} | {settings['epochs']} | {len(values)} | {values.mean():.2f} | "
              f"{spread} | {values.max():.2f} |")


def export(args):
    """Runs the subcommand `export`."""
    import torch

    from training.weights import write_model

    run = Path(args.run)
    settings, scores, students, network = results_of(run)
    if args.rank > len(scores):
        raise idx.DataError(f"--rank {args.rank}: expected at most the {len(scores)} networks of {run}.")
    copy = sorted(range(len(scores)), key=lambda s: -scores[s])[args.rank - 1]
    write_model(args.model, network, {n: torch.from_numpy(students[n][copy]) for n in students.files}, args.form)
    print(f"seed {settings['seed'] + copy}, validation accuracy {scores[copy]:.4f}: written to {args.model}")


def evaluate(args):
    """Runs the subcommand `evaluate`."""
    from training.spiking_net import predict

    network = description.read(args.model)
    folder = idx.find_folder(args.data)
    images, labels = (
        idx.read_set(folder, "t10k") if args.set == "test" else idx.split(*idx.read_set(folder, "train"))[1]
    )
    images, labels = images[: args.limit], labels[: args.limit]
    predicted = predict(args.model, network, idx.images_for(network.image, images))
    print(f"{args.model}: {np.mean(predicted == labels):.4f} of {len(labels)} {args.set} images")
    if args.predictions:
        np.save(args.predictions, predicted)


def images(args):
    """Runs the subcommand `images`."""
    network = description.read(args.model)
    pictures, labels = idx.read_set(idx.find_folder(args.data), "t10k")
    pictures = idx.images_for(network.image, pictures)
    if network.image[2] == 1:
        pictures = pictures[..., 0]
    folder = Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in ((f"t10k-images-idx{pictures.ndim}-ubyte.gz", pictures), ("t10k-labels-idx1-ubyte.gz", labels)):
        idx.write_idx(folder / name, array)
        print(folder / name)


def check(_):
    """Runs the subcommand `check`."""
    from training.check import check as compare

    compare([description.read(ROOT / "models" / name) for name in ("fashion-scnn", "rgb-scnn")])


def main(args):
    """Runs a subcommand. The exit code is 2 if input is missing or wrong."""
    try:
        {"train": train, "teach": teach, "table": table, "export": export, "evaluate": evaluate, "images": images,
         "check": check}[args.mode](args)
    except idx.DataError as error:
        if not isinstance(error, idx.ToldError):
            print(f"train_fashion.py: {error}", file=sys.stderr)
        sys.exit(EXIT_INPUT)


if __name__ == "__main__":
    main(ARGUMENTS)
