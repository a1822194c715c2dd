#!/usr/bin/env python3
"""Trains the spiking networks of models/: many seeds at once, chosen on validation images, tested once.

Steps, each a subcommand:

    train_fashion.py check                          the fast form against SpikingJelly: logits and gradients
    train_fashion.py train --out run                teachers, then all seeds; --resume goes on after a stop
    train_fashion.py export run model               the seed that is best on the validation images, as a model folder
    train_fashion.py evaluate model                 accuracy on the test images, by SpikingJelly on the CPU
    train_fashion.py images model folder            the test set as `convoy run model` reads it
    train_fashion.py table run...                   a line a run: accuracy on the validation images, mean and spread
    train_fashion.py teach --out teachers.pt        the teachers alone, for several runs of `train --taught`
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
    value = kind(text)
    if not value >= least:
        raise argparse.ArgumentTypeError(f"{text}, expected {least} or more")
    return value


def positive(text):
    return number(int, 1, text)


def count(text):
    return number(int, 0, text)


def rate(text):
    return number(float, 0, text)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)

    def mode(name, text, data=True):
        sub = modes.add_parser(name, help=text, description=text)
        if data:
            sub.add_argument(
                "--data",
                help="folder of the Fashion-MNIST IDX files; else $CONVOY_DATA, the XDG data folder, Debian's package",
            )
        return sub

    def teaching(sub):
        sub.add_argument("--teacher-epochs", type=positive, default=15, help="default: 15")
        sub.add_argument("--device", help="cpu, cuda, cuda:1, ...; default: a GPU where there is one")
        sub.add_argument("--limit", type=positive, help="this many images only, for a trial; of the validation set too")

    train = mode("train", "train many seeds at once")
    train.add_argument("--out", required=True, help="folder for checkpoints, log, results, networks and curves")
    train.add_argument("--resume", action="store_true", help="go on with the run in --out, which was stopped")
    train.add_argument(
        "--network", default=str(ROOT / "models/fashion-scnn"), help="network.txt or its folder; default: fashion-scnn"
    )
    train.add_argument("--steps", "--timesteps", type=positive, metavar="T", help="time steps; default: the network's")
    train.add_argument(
        "--preset", choices=presets.PRESETS, default="ours", help="the recipe: default values of the options below"
    )

    def option(name, text, **kind):
        key = name.replace("-", "_")
        values = ", ".join(f"{preset} {value[key]}" for preset, value in presets.PRESETS.items())
        train.add_argument("--" + name, help=f"{text}; {values}", **kind)

    option("epochs", "passes over the training images", type=positive)
    option("seeds", "networks trained at once", type=positive)
    option("seed", "the first of them", type=int)
    option("batch", "images a step", type=positive)
    option("teachers", "residual networks whose logits are averaged; 0: labels alone", type=count)
    option("shift", "images are shifted by up to this many pixels, beside flips", type=count)
    option("lr", "of Muon, for the weights", type=rate)
    option("adam-lr", "of AdamW, for the biases", type=rate)
    option("weight-decay", "of both", type=rate)
    option("warmup", "share of the steps in which the rate rises", type=rate)
    option("surrogate", "form of the surrogate gradient", choices=("atan", "sigmoid"))
    option("alpha", "its steepness", type=rate)
    option("route", "where a pool's gradient goes", choices=("membrane", "first"))
    option("through-reset", "a gradient flows through the reset too", action=argparse.BooleanOptionalAction)
    train.add_argument("--gain", type=rate, default=1.0, help="of the first weights' range; default: 1, PyTorch's")
    train.add_argument("--taught", help="the teachers' logits, a file that `teach` wrote, in place of --teachers")
    train.add_argument("--every", type=positive, default=10, help="epochs between checkpoints; default: 10")
    train.add_argument("--no-compile", action="store_true", help="without torch.compile: slower, the same networks")
    teaching(train)

    teach = mode("teach", "train teachers and write what they say about each variant of each image")
    teach.add_argument("--out", required=True, help="file to write")
    for name in ("teachers", "shift", "seed"):
        teach.add_argument("--" + name, type=count, default=presets.OURS[name], help=f"default: {presets.OURS[name]}")
    teaching(teach)

    table = mode("table", "validation accuracy of runs: mean, standard deviation and best of their seeds", data=False)
    table.add_argument("runs", nargs="+", help="folders that `train` wrote")

    export = mode("export", "write one trained network as a model folder", data=False)
    export.add_argument("run", help="folder that `train` wrote")
    export.add_argument("model", help="folder to write network.txt and the weights to")
    export.add_argument("--rank", type=positive, default=1, help="1: best on the validation images, 2: the second")
    export.add_argument("--form", choices=("text", "safetensors"), default="text", help="of the weights; default: text")

    evaluate = mode("evaluate", "accuracy of a model folder, by SpikingJelly on the CPU")
    evaluate.add_argument("model")
    evaluate.add_argument("--set", choices=("test", "validation"), default="test")
    evaluate.add_argument("--limit", type=positive, help="the first so many images only")
    evaluate.add_argument("--predictions", help="also save the predicted labels, u8, to this .npy")

    images = mode("images", "write the test set as a model's `convoy run` reads it")
    images.add_argument("model")
    images.add_argument("folder", help="gets t10k-images-idx<3 or 4>-ubyte.gz and t10k-labels-idx1-ubyte.gz")

    mode("check", "compare the fast form with SpikingJelly: logits and gradients, in double", data=False)
    return parser.parse_args()


ARGUMENTS = arguments() if __name__ == "__main__" else None  # before the imports below: --help needs none of them

import numpy as np  # noqa: E402

from training import description, idx  # noqa: E402


def device_of(args):
    import torch

    from training import processes

    _, local, size = processes.started()
    gpu = f"cuda:{local}" if size > 1 else "cuda"
    try:
        device = torch.device(args.device or (gpu if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=device)
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)  # streams and graphs are made on the current one
    except (RuntimeError, AssertionError) as error:
        raise idx.DataError(f"--device {args.device or gpu}: {str(error).splitlines()[0]}") from None
    return device


def training_images(args):
    """((images, labels), (validation images, labels)), of Fashion-MNIST's 28x28."""
    sets = idx.split(*idx.read_set(idx.find_folder(args.data), "train"))
    return [(images[: args.limit], labels[: args.limit]) for images, labels in sets] if args.limit else sets


def train(args):
    from training.session import train as session

    presets.fill(args)
    network = description.read(args.network, args.steps)
    session(args, network, device_of(args), *training_images(args))


def teach(args):
    from training import atomic
    from training.session import make_table

    device = device_of(args)
    if args.teachers < 1:
        raise idx.DataError("--teachers 0: expected 1 or more")
    settings = {k: v for k, v in sorted(vars(args).items()) if k not in ("mode", "out", "data", "device")}
    table = make_table(args, device, *training_images(args), lambda text: print(text, flush=True))
    atomic.save(args.out, {"table": table.cpu(), "settings": settings})


def results_of(run):
    """(settings, validation accuracy by seed, students.npz, the network) of a complete run."""
    try:
        results = json.loads((run / "results.json").read_text())
        return results["settings"], results["validation"], np.load(run / "students.npz"), description.read(run)
    except OSError as error:
        raise idx.DataError(f"{error}. Expected a folder that `train` wrote, to its end") from None
    except (ValueError, KeyError, TypeError) as error:
        raise idx.DataError(f"{run}: broken ({error}). Expected a folder that `train` wrote") from None


def table(args):
    print("| run | T | epochs | seeds | mean, % | standard deviation | best |\n|---|---|---|---|---|---|---|")
    for run in args.runs:
        settings, scores, _, network = results_of(Path(run))
        values = 100 * np.array(scores)
        spread = f"{values.std(ddof=1):.2f}" if len(values) > 1 else "–"
        print(f"| {Path(run).name} | {network.steps} | {settings['epochs']} | {len(values)} | {values.mean():.2f} | "
              f"{spread} | {values.max():.2f} |")


def export(args):
    import torch

    from training.weights import write_model

    run = Path(args.run)
    settings, scores, students, network = results_of(run)
    if args.rank > len(scores):
        raise idx.DataError(f"--rank {args.rank}, but {run} holds {len(scores)} networks")
    copy = sorted(range(len(scores)), key=lambda s: -scores[s])[args.rank - 1]
    write_model(args.model, network, {n: torch.from_numpy(students[n][copy]) for n in students.files}, args.form)
    print(f"seed {settings['seed'] + copy}, validation accuracy {scores[copy]:.4f}: written to {args.model}")


def evaluate(args):
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
    from training.check import check as compare

    compare([description.read(ROOT / "models" / name) for name in ("fashion-scnn", "rgb-scnn")])


def main(args):
    try:
        {"train": train, "teach": teach, "table": table, "export": export, "evaluate": evaluate, "images": images,
         "check": check}[args.mode](args)
    except idx.DataError as error:
        if not isinstance(error, idx.ToldError):
            print(f"train_fashion.py: {error}", file=sys.stderr)
        sys.exit(EXIT_INPUT)


if __name__ == "__main__":
    main(ARGUMENTS)
