"""The command `python -m convoy.ray`: writes the labels of many images to a table."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from ._core import Error, FileNotFound, Network
from .ray import TABLES, classify, connect, find_images, write


def _arguments() -> argparse.Namespace:
    """Returns the command's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m convoy.ray",
        description="Runs a model folder on many images with the workers of a Ray cluster and writes their labels.",
    )

    def positive(text: str) -> int:
        """Returns the text as a number of 1 or more."""
        if int(text) < 1:
            raise argparse.ArgumentTypeError(f"{text}, expected 1 or more")
        return int(text)

    parser.add_argument("model", help="model folder (docs/use/model-folders.md)")
    parser.add_argument("images", help="folder of pictures, or IDX file of u8 images, plain or gzip")
    parser.add_argument("-o", "--out", required=True, help="file to write: .parquet or .csv")
    parser.add_argument("--workers", type=positive, help="processes; default: one per CPU of this machine; 1 with cuda")
    parser.add_argument("--threads", type=positive, default=1, help="CPU threads of each process; default: 1")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda: each process then has a GPU; default: cpu")
    parser.add_argument("--batch", type=positive, default=1000, help="images per call of the network; default: 1000")
    parser.add_argument("--logits", action="store_true", help="also write the columns logit0, logit1, ...")
    parser.add_argument("--resize", action="store_true", help="scale pictures to the network's size")
    parser.add_argument("--address", help="address of a cluster, or auto; default: a new cluster on this machine")
    return parser.parse_args()


def main() -> None:
    """Runs the command `python -m convoy.ray`. The exit code is 2 if input is missing or wrong."""
    args = _arguments()
    try:
        out = Path(args.out)
        if out.suffix not in TABLES:
            raise Error(f"-o {out}: expected a name that ends in {' or '.join(TABLES)}.")
        if not out.resolve().parent.is_dir():
            raise FileNotFound(f"-o {out}: no folder {out.resolve().parent}. Create it, or name another folder.")
        images = find_images(args.images, Network(args.model).image_shape)  # raises Error before a cluster is started
        workers = args.workers or max(1, (os.cpu_count() or 1) // args.threads if args.device == "cpu" else 1)
        connect(args.address, max(os.cpu_count() or 1, workers * args.threads))
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # the reason why a run ended is printed below
        tables = classify(args.model, args.images, workers=workers, threads=args.threads, device=args.device,
                          batch=args.batch, logits=args.logits, resize=args.resize)  # fmt: skip
        rows = write(tables, out)
        print(f"{rows} labels of {images.count} images: {out}")
    except Error as error:
        print(f"python -m convoy.ray: {error}", file=sys.stderr)
        sys.exit(2)
    finally:
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()
