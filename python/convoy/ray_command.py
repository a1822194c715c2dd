"""The command `python -m convoy.ray`: labels of a file or folder of images, in a table."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from ._core import Error, Network
from .ray import TABLES, classify, connect, find_images, write


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m convoy.ray",
        description="Labels of many images by a model folder, computed by the workers of a Ray cluster.",
    )

    def positive(text: str) -> int:
        if int(text) < 1:
            raise argparse.ArgumentTypeError(f"{text}, expected 1 or more")
        return int(text)

    parser.add_argument("model", help="model folder (docs/use/networks.md)")
    parser.add_argument("images", help="folder of pictures, or an IDX file of u8 images, plain or gzip")
    parser.add_argument("-o", "--out", required=True, help="file to write, .parquet or .csv")
    parser.add_argument("--workers", type=positive, help="processes; default: one a CPU of this machine; 1 with cuda")
    parser.add_argument("--threads", type=positive, default=1, help="of a worker; default: 1")
    parser.add_argument("--device", default="cpu", help="cpu or cuda: then each worker has a GPU; default: cpu")
    parser.add_argument("--batch", type=positive, default=1000, help="images at once; default: 1000")
    parser.add_argument("--logits", action="store_true", help="columns logit0, logit1, ... too")
    parser.add_argument("--resize", action="store_true", help="scale pictures to the network's size")
    parser.add_argument("--address", help="of a running cluster, or auto; default: one on this machine for this run")
    return parser.parse_args()


def main() -> None:
    """The command `python -m convoy.ray`. Exit code 2 for input that is missing or wrong."""
    args = _arguments()
    try:
        out = Path(args.out)
        if out.suffix not in TABLES:
            raise Error(f"-o {out}: expected a name that ends in {' or '.join(TABLES)}")
        if not out.resolve().parent.is_dir():
            raise Error(f"-o {out}: no folder {out.resolve().parent}")
        images = find_images(args.images, Network(args.model).image_shape)  # before a cluster is started
        workers = args.workers or max(1, (os.cpu_count() or 1) // args.threads if args.device == "cpu" else 1)
        connect(args.address, max(os.cpu_count() or 1, workers * args.threads))
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # what ends a run is told below
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
