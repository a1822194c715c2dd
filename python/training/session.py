"""Runs `train`, from data to results."""

import json
import time
import zlib
from contextlib import nullcontext
from pathlib import Path

import torch
from tqdm import tqdm

from . import atomic, description, idx
from . import processes as processes_of
from .batched_net import Gradients
from .data import Augmenter, Normalise
from .processes import Processes
from .run_folder import RunFolder
from .students import Students
from .teacher import logits_of, read_table, teach, train_teacher

# Options that name a place or affect only reports. They do not change a network.
NOT_SETTINGS = ("mode", "out", "data", "resume", "network", "taught", "preset")


def make_table(args, device, trained, held, log, processes=None):
    """Trains args.teachers networks and returns their logits [variants, N, 10] for each variant of each training image.

    Several processes divide the teachers among themselves; all get the table.
    """
    processes = processes or Processes()
    images, labels = trained
    held_images = torch.from_numpy(held[0][..., None].copy()).to(device)
    teachers = []
    whose = "those so far" if processes.size == 1 else "process 0's so far"
    for k in range(processes.rank, args.teachers, processes.size):
        batch = min(500, len(labels))
        teachers.append(
            train_teacher(images[..., None], labels, args.teacher_epochs, args.seed + 1000 + k, device, batch)
        )
        predicted = logits_of(teachers, held_images).argmax(1).cpu().numpy()
        log(
            f"teacher {k + 1} of {args.teachers}: the mean of {whose} has "
            f"{(predicted == held[1]).mean():.4f} on the validation images"
        )
    augment = Augmenter(images[..., None], args.shift, device)
    table = processes.sum(teach(teachers, augment, args.teachers))
    log(f"teachers' logits for {augment.variants} variants of each image")
    return table


def taught_table(args, folder, device, trained, held, variants, log, processes):
    """Returns the teachers' logits, or None without teachers: from --taught, from this run's start, or made now."""
    own, images = folder.path / "teachers.pt", len(trained[1])
    source = processes.first(lambda: args.taught or (str(own) if own.exists() else None))
    if source:
        return processes.tensor(lambda: read_table(source, images, variants), (variants, images, 10), device)
    if not args.teachers:
        return None
    table = make_table(args, device, trained, held, log, processes)
    processes.first(lambda: atomic.save(own, {"table": table.cpu()}))
    return table


def settings_of(args, network, trained, processes):
    """Returns the settings that determine the networks of a run."""
    settings = {k: v for k, v in sorted(vars(args).items()) if k not in NOT_SETTINGS}
    settings["network"] = network.text
    settings["images"] = f"{zlib.crc32(trained[1].tobytes(), zlib.crc32(trained[0].tobytes())):08x}"
    if args.taught:
        settings["teachers"] = "of a file"
    if processes.size > 1:  # several processes add in another order than one
        settings["processes"] = processes.size
    return settings


def open_folder(args, settings, restarted):
    """Returns (the run's folder, whether an earlier start is continued), or (None, True) if that start had finished.

    After a restart by torchrun, a process continues the run that the first start began.
    """
    begun = restarted and Path(args.out, "settings.json").exists()
    if begun and Path(args.out, "results.json").exists():
        return None, True
    resume = args.resume or begun
    return RunFolder(args.out, settings, resume), resume


def train(args, network, device, trained, held):
    """Trains the networks. Raises DataError for options that do not fit the data or the folder."""
    if args.batch > len(trained[1]):
        raise idx.DataError(f"--batch {args.batch}: expected at most the {len(trained[1])} training images.")
    size = processes_of.started()[2]
    if args.batch % size:
        raise idx.DataError(f"--batch {args.batch}: expected a multiple of the {size} processes, which share it.")
    args.device = device.type
    with processes_of.joined(device) as processes:
        settings = settings_of(args, network, trained, processes)
        folder, resume = processes.first(lambda: open_folder(args, settings, processes_of.starts() > 0))
        if folder:
            run(args, network, device, trained, held, folder, resume, processes)


def run(args, network, device, trained, held, folder, resume, processes):
    """Runs the epochs that are left, and writes the results."""
    begin = time.perf_counter()
    torch.backends.cuda.matmul.allow_tf32 = True
    with folder.log_file() if processes.leads else nullcontext() as log_file:

        def log(text):
            """Prints a line with the time, and appends it to the log; in process 0 only."""
            if not processes.leads:
                return
            line = f"{time.perf_counter() - begin:7.1f} s  {text}"
            tqdm.write(line)
            print(line, file=log_file, flush=True)

        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
        many = f", {processes.size} processes" if processes.size > 1 else ""
        images = f"{len(trained[1])} training images, {len(held[1])} for validation"
        log(f"torch {torch.__version__} on {name}{many}; {images}")
        log("settings " + json.dumps(folder.settings))
        augment = Augmenter(idx.images_for(network.image, trained[0]), args.shift, device)
        taught = taught_table(args, folder, device, trained, held, augment.variants, log, processes)
        targets = torch.from_numpy(trained[1].astype("int64")).to(device)
        students = Students(network, augment, Normalise(network, device), targets, taught, args.seeds, args.seed,
                            args.epochs, args.batch,
                            Gradients(args.surrogate, args.alpha, args.route, args.through_reset),
                            compiled=device.type == "cuda" and not args.no_compile, gain=args.gain, processes=processes,
                            lr=args.lr, adam_lr=args.adam_lr, weight_decay=args.weight_decay,
                            warmup=args.warmup)  # fmt: skip
        history = folder.restore(students, processes) if resume else []
        if resume:
            log(f"resumed after epoch {students.epoch}")
        log(f"{description.parameters(network):,} parameters, T = {network.steps}, {args.seeds} networks")
        images = torch.from_numpy(idx.images_for(network.image, held[0]).copy()).to(device)
        labels = torch.from_numpy(held[1].astype("int64")).to(device)
        scores = run_epochs(students, args, folder, history, images, labels, log, processes)
        log("validation accuracy by seed: " + " ".join(f"{args.seed + s}:{a:.4f}" for s, a in enumerate(scores)))
        log(f"{students.seconds:.0f} s for {args.epochs} epochs of {args.seeds} networks")
    processes.first(lambda: folder.finish(students, history, scores))


def run_epochs(students, args, folder, history, images, labels, log, processes):
    """Runs the epochs that are left, and returns the validation accuracies after the last one."""
    bar = tqdm(total=args.epochs, initial=students.epoch, unit="epoch",
               disable=None if processes.leads else True)  # None: no bar without a terminal  # fmt: skip
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
            processes.first(lambda: folder.save(students, history))
    return [round(a, 4) for a in students.accuracy(images, labels).tolist()]
