"""One run of `train`, from data to results."""

import json
import time
import zlib

import torch
from tqdm import tqdm

from . import atomic, description, idx
from .batched_net import Gradients
from .data import Augmenter, Normalise
from .run_folder import RunFolder
from .students import Students
from .teacher import logits_of, read_table, teach, train_teacher

# What names a place or says how often to report, and changes no network.
NOT_SETTINGS = ("mode", "out", "data", "resume", "network", "taught", "preset")


def make_table(args, device, trained, held, log):
    """The logits [variants, N, 10] of args.teachers networks for every variant of every training image."""
    images, labels = trained
    held_images = torch.from_numpy(held[0][..., None].copy()).to(device)
    teachers = []
    for k in range(args.teachers):
        batch = min(500, len(labels))
        teachers.append(
            train_teacher(images[..., None], labels, args.teacher_epochs, args.seed + 1000 + k, device, batch)
        )
        predicted = logits_of(teachers, held_images).argmax(1).cpu().numpy()
        log(
            f"teacher {k + 1} of {args.teachers}: the mean of those so far has "
            f"{(predicted == held[1]).mean():.4f} on the validation images"
        )
    augment = Augmenter(images[..., None], args.shift, device)
    table = teach(teachers, augment)
    log(f"teachers' logits for {augment.variants} variants of each image")
    return table


def taught_table(args, folder, device, trained, held, variants, log):
    """The teachers' logits: from --taught, from this run's first part, or made now; None without teachers."""
    own = folder.path / "teachers.pt"
    if args.taught or own.exists():
        return read_table(args.taught or own, len(trained[1]), variants).to(device)
    if not args.teachers:
        return None
    table = make_table(args, device, trained, held, log)
    atomic.save(own, {"table": table.cpu()})
    return table


def settings_of(args, network, trained):
    settings = {k: v for k, v in sorted(vars(args).items()) if k not in NOT_SETTINGS}
    settings["network"] = network.text
    settings["images"] = f"{zlib.crc32(trained[1].tobytes(), zlib.crc32(trained[0].tobytes())):08x}"
    if args.taught:
        settings["teachers"] = "of a file"
    return settings


def train(args, network, device, trained, held):
    if args.batch > len(trained[1]):
        raise idx.DataError(f"--batch {args.batch} is more than the {len(trained[1])} training images")
    args.device = device.type
    folder = RunFolder(args.out, settings_of(args, network, trained), args.resume)
    begin = time.perf_counter()
    torch.backends.cuda.matmul.allow_tf32 = True
    with folder.log_file() as log_file:

        def log(text):
            line = f"{time.perf_counter() - begin:7.1f} s  {text}"
            tqdm.write(line)
            print(line, file=log_file, flush=True)

        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
        log(f"torch {torch.__version__} on {name}; {len(trained[1])} training images, {len(held[1])} for validation")
        log("settings " + json.dumps(folder.settings))
        augment = Augmenter(idx.images_for(network.image, trained[0]), args.shift, device)
        taught = taught_table(args, folder, device, trained, held, augment.variants, log)
        targets = torch.from_numpy(trained[1].astype("int64")).to(device)
        students = Students(network, augment, Normalise(network, device), targets, taught, args.seeds, args.seed,
                            args.epochs, args.batch,
                            Gradients(args.surrogate, args.alpha, args.route, args.through_reset),
                            compiled=device.type == "cuda" and not args.no_compile, gain=args.gain, lr=args.lr,
                            adam_lr=args.adam_lr, weight_decay=args.weight_decay, warmup=args.warmup)  # fmt: skip
        history = folder.restore(students) if args.resume else []
        if args.resume:
            log(f"resumed behind epoch {students.epoch}")
        log(f"{description.parameters(network):,} parameters, T = {network.steps}, {args.seeds} networks")
        images = torch.from_numpy(idx.images_for(network.image, held[0]).copy()).to(device)
        labels = torch.from_numpy(held[1].astype("int64")).to(device)
        scores = run_epochs(students, args, folder, history, images, labels, log)
        log("validation accuracy by seed: " + " ".join(f"{args.seed + s}:{a:.4f}" for s, a in enumerate(scores)))
        log(f"{students.seconds:.0f} s for {args.epochs} epochs of {args.seeds} networks")
    folder.finish(students, history, scores)
    (folder.path / "teachers.pt").unlink(missing_ok=True)


def run_epochs(students, args, folder, history, images, labels, log):
    """The epochs that are left; the validation accuracies behind the last one."""
    bar = tqdm(total=args.epochs, initial=students.epoch, unit="epoch", disable=None)  # silent where none looks
    with bar:
        while students.epoch < args.epochs:
            loss = students.run_epoch()
            bar.update()
            if students.epoch % args.every and students.epoch not in (1, args.epochs):
                continue
            accuracy = students.accuracy(images, labels)
            point = {"epoch": students.epoch, "loss": round(loss, 5), "mean": round(accuracy.mean().item(), 5),
                     "best": round(accuracy.max().item(), 5)}  # fmt: skip
            history.append(point)
            log("epoch {epoch:4d}  loss {loss:.4f}  validation mean {mean:.4f} best {best:.4f}".format(**point))
            bar.set_postfix(validation=point["mean"])
            folder.save(students, history)
    return [round(a, 4) for a in students.accuracy(images, labels).tolist()]
