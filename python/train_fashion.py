#!/usr/bin/env python3
"""Trains the spiking network of models/fashion-scnn: many seeds at once, chosen on validation images, tested once.

Four steps, each a subcommand:

    train_fashion.py check                              the fast form against SpikingJelly: logits and gradients
    train_fashion.py train --out run                    teachers, then all seeds; writes students.npz and training.log
    train_fashion.py export run ../models/fashion-scnn  the seed that is best on the validation images, as text files
    train_fashion.py evaluate ../models/fashion-scnn    accuracy on the test images, by SpikingJelly on the CPU
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from training import batched_net, data  # noqa: E402

EXIT_INPUT = 2


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value}, expected 1 or more")
    return value


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)

    def mode(name, text):
        sub = modes.add_parser(
            name, help=text, description=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        if name != "check":
            sub.add_argument(
                "--data",
                help="folder of the Fashion-MNIST IDX files; else $CONVOY_DATA, the XDG data folder, Debian's package",
            )
        return sub

    train = mode("train", "train many seeds at once")
    train.add_argument(
        "--out", required=True, help="folder for students.npz, results.json and training.log; must not exist yet"
    )
    train.add_argument("--epochs", type=positive, default=300)
    train.add_argument("--seeds", type=positive, default=16, help="networks trained at once")
    train.add_argument("--seed", type=int, default=0, help="the first of them")
    train.add_argument("--batch", type=positive, default=250)
    train.add_argument("--teachers", type=positive, default=3, help="residual networks whose logits are averaged")
    train.add_argument("--teacher-epochs", type=positive, default=15)
    train.add_argument("--lr", type=float, default=0.02, help="of Muon; AdamW for the biases takes half")
    train.add_argument("--weight-decay", type=float, default=0.01)
    train.add_argument("--alpha", type=float, default=1.5, help="steepness of the surrogate gradient")
    train.add_argument(
        "--route", choices=("membrane", "first"), default="membrane", help="where a pool's gradient goes"
    )
    train.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    train.add_argument("--no-compile", action="store_true", help="without torch.compile: slower, the same networks")
    train.add_argument("--limit", type=positive, help="train on this many images only (for a trial)")

    export = mode("export", "write one trained network as a model folder's weight files")
    export.add_argument("run", help="folder that `train` wrote")
    export.add_argument("model", help="folder to write *.txt to")
    export.add_argument(
        "--rank", type=positive, default=1, help="1: best on the validation images, 2: second best, ..."
    )

    evaluate = mode("evaluate", "accuracy of a model folder, by SpikingJelly on the CPU")
    evaluate.add_argument("model")
    evaluate.add_argument("--set", choices=("test", "validation"), default="test")
    evaluate.add_argument("--predictions", help="also save the predicted labels, u8, to this .npy")

    mode("check", "compare the fast form with SpikingJelly: logits and gradients, in double")
    return parser.parse_args()


def train(args):
    from training.students import Students
    from training.teacher import teach, train_teacher

    out = Path(args.out)
    if out.exists():
        raise data.DataError(
            f"{out}: exists already. Remove it or name another folder, so that no earlier run is overwritten"
        )
    device = torch.device(args.device)
    (images, labels), (held, held_labels) = data.split(*data.read_set(data.find_folder(args.data), "train"))
    if args.limit:
        images, labels = images[: args.limit], labels[: args.limit]
    if args.batch > len(labels):
        raise data.DataError(f"--batch {args.batch} is more than the {len(labels)} training images")
    out.mkdir(parents=True)
    begin = time.perf_counter()
    with open(out / "training.log", "w") as log_file:

        def log(text):
            line = f"{time.perf_counter() - begin:7.1f} s  {text}"
            print(line, flush=True)
            print(line, file=log_file, flush=True)

        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
        settings = {k: v for k, v in sorted(vars(args).items()) if k not in ("mode", "out", "data")}
        log(f"torch {torch.__version__} on {name}; {len(labels)} training images, {len(held_labels)} for validation")
        log("settings " + json.dumps(settings))
        torch.backends.cuda.matmul.allow_tf32 = True
        held, held_labels = (
            torch.from_numpy(held.copy()).to(device),
            torch.from_numpy(held_labels.astype("int64")).to(device),
        )
        teachers = []
        for k in range(args.teachers):
            teachers.append(
                train_teacher(
                    images, labels, args.teacher_epochs, args.seed + 1000 + k, device, min(500, args.batch * 2)
                )
            )
            with torch.no_grad():
                scores = sum(t(data.normalise(held)) for t in teachers)
            log(
                f"teacher {k + 1} of {args.teachers}: the mean of those so far has "
                f"{accuracy(scores.argmax(1), held_labels):.4f} on the validation images"
            )
        augment = data.Augmenter(images, 1, device)
        taught = teach(teachers, augment)
        log(f"teachers' logits for {augment.variants} variants of each image")

        targets = torch.from_numpy(labels.astype("int64")).to(device)
        students = Students(augment, targets, taught, args.seeds, args.seed, args.epochs, args.batch,
                            compiled=device.type == "cuda" and not args.no_compile, alpha=args.alpha, route=args.route,
                            lr=args.lr, adam_lr=args.lr / 2, weight_decay=args.weight_decay)  # fmt: skip
        for epoch in range(1, args.epochs + 1):
            loss = students.run_epoch()
            if epoch == 1 or epoch % 20 == 0 or epoch == args.epochs:
                held_accuracy = students.accuracy(held, held_labels)
                log(
                    f"epoch {epoch:4d}  loss {loss:.4f}  "
                    f"validation mean {held_accuracy.mean():.4f} best {held_accuracy.max():.4f}"
                )
        scores = [round(a, 4) for a in held_accuracy.tolist()]
        log("validation accuracy by seed: " + " ".join(f"{args.seed + s}:{a:.4f}" for s, a in enumerate(scores)))
        log(f"{students.seconds:.0f} s for {args.epochs} epochs of {args.seeds} networks")
    np.savez(out / "students.npz", **{n: p.detach().cpu().numpy() for n, p in students.params.items()})
    with open(out / "results.json", "w") as file:
        json.dump({"settings": settings, "validation": scores}, file, indent=1)


def accuracy(predicted, labels):
    return (predicted == labels).float().mean().item()


def export(args):
    from training.spiking_net import write_weights

    run = Path(args.run)
    try:
        results = json.loads((run / "results.json").read_text())
        students = np.load(run / "students.npz")
    except OSError as error:
        raise data.DataError(f"{error}. Expected a folder that `train` wrote") from None
    scores = results["validation"]
    if args.rank > len(scores):
        raise data.DataError(f"--rank {args.rank}, but {run} holds {len(scores)} networks")
    copy = sorted(range(len(scores)), key=lambda s: -scores[s])[args.rank - 1]
    write_weights(args.model, {n: torch.from_numpy(students[n][copy]) for n in students.files})
    print(f"seed {results['settings']['seed'] + copy}, validation accuracy {scores[copy]:.4f}: written to {args.model}")


def evaluate(args):
    from training.spiking_net import predict

    folder = data.find_folder(args.data)
    images, labels = (
        data.read_set(folder, "t10k") if args.set == "test" else data.split(*data.read_set(folder, "train"))[1]
    )
    predicted = predict(args.model, images)
    print(f"{args.model}: {np.mean(predicted == labels):.4f} of {len(labels)} {args.set} images")
    if args.predictions:
        np.save(args.predictions, predicted)


def check(_):
    """The fast form and SpikingJelly, same weights: equal logits by both routes, equal gradients if both pool alike."""
    from training.spiking_net import SpikingNet

    torch.manual_seed(0)
    params = {n: p.double() for n, p in batched_net.initial(3, 5, torch.device("cpu")).items()}
    # Larger weights than at the start, so that every layer fires.
    params = {n: (p * 4 if n.endswith("weight") else p).requires_grad_() for n, p in params.items()}
    x = torch.rand(6, 28, 28, dtype=torch.double) * 2 - 1
    fast = batched_net.forward(params, x, 1.5, "first")
    grads = torch.autograd.grad(fast.square().sum(), list(params.values()))
    other = batched_net.forward(params, x, 1.5, "membrane")
    worst_logit = worst_grad = 0.0
    for s in range(3):
        net = SpikingNet(1.5).double()
        net.load_state_dict({n: p[s].detach() for n, p in params.items()})
        logits = net(x[:, None])
        logits.square().sum().backward()
        worst_logit = max(worst_logit, (logits - fast[s]).abs().max().item(), (logits - other[s]).abs().max().item())
        slow = dict(net.named_parameters())
        for n, g in zip(params, grads):
            if not slow[n].grad.abs().max() > 0:
                raise SystemExit(f"{n}: SpikingJelly's gradient is zero, so nothing was compared")
            worst_grad = max(worst_grad, ((g[s] - slow[n].grad).abs().max() / slow[n].grad.abs().max()).item())
    print(f"largest difference: logits {worst_logit:.1e}, gradients {worst_grad:.1e} of the largest")
    if worst_logit > 1e-12 or worst_grad > 1e-12:
        raise SystemExit("the fast form and SpikingJelly differ by more than 1e-12")


def main():
    args = arguments()
    try:
        {"train": train, "export": export, "evaluate": evaluate, "check": check}[args.mode](args)
    except data.DataError as error:
        print(f"train_fashion.py: {error}", file=sys.stderr)
        sys.exit(EXIT_INPUT)


if __name__ == "__main__":
    main()
