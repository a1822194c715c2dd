"""Bulk inference on a Ray cluster: runs a model folder on many images and writes the labels to a table.

It needs the package 'ray[data]'. The first command starts a cluster on this machine; --address names another cluster::

    python -m convoy.ray MODEL IMAGES -o labels.parquet
    python -m convoy.ray --help

`Classifier` is a class for Ray Data's map_batches, for pipelines of your own. docs/use/distributed.md says when more
than one process is useful.
"""

from __future__ import annotations

import itertools
import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ._core import Error, FileError, InternalError, Network, Unsupported

try:
    import numpy as np
except ImportError as _missing:
    raise Unsupported(f"convoy.ray needs NumPy, which is not here ({_missing}). Install it and Ray Data: "
                      "pip install numpy 'ray[data]'") from _missing  # fmt: skip

from .ray_images import Images, Reader, find_images  # noqa: E402

__all__ = ["Classifier", "Images", "classify", "connect", "find_images", "pack", "write"]

WEIGHTS = (".npy", ".safetensors", ".txt")
TABLES = (".csv", ".parquet")


def _ray() -> Any:
    """Returns the module ray. It is imported at the first use, because it reads its environment variables then."""
    try:
        import pyarrow  # noqa: F401
        import ray.data
    except ImportError as missing:
        raise Unsupported(f"convoy.ray needs Ray Data ({missing}). Install it: pip install 'ray[data]'") from None
    return ray


def pack(model: str | os.PathLike[str]) -> dict[str, bytes]:
    """Reads the files of a model folder, for `Classifier`: workers on other machines then need no folder.

    Args:
        model: The model folder, a path.

    Returns:
        A dict of the files' contents by name.

    Raises:
        Error: The network cannot be loaded.

    Example:
        >>> import convoy.ray
        >>> sorted(convoy.ray.pack(convoy.demo_model()))[:2]
        ['conv1.bias.txt', 'conv1.weight.txt']
    """
    Network(model)
    return {path.name: path.read_bytes() for path in Path(model).iterdir() if path.suffix in WEIGHTS and path.is_file()}


class Classifier:
    """Computes the labels of images, batch by batch: a class for Ray Data's map_batches.

    Labels do not depend on batches, workers or threads. If a worker dies and Ray runs its batch again, the labels are
    the same.

    Args:
        model: A folder that every worker can read, or the result of `pack`.
        column: The column of a batch that has the images.
        device: "cpu", "cuda" or, for example, "cuda:1". With "cuda", pass num_gpus=1 to map_batches.
        threads: The number of CPU threads. Pass the same number as num_cpus to map_batches.
        logits: Add the logits to each batch.

    Raises:
        Error: The network cannot be loaded.

    Example:
        The images are u8 [H, W] or [H, W, C] in the column "image"::

            images = ray.data.read_images(folder, mode="L")
            labels = images.map_batches(convoy.ray.Classifier, fn_constructor_args=[convoy.ray.pack(model)],
                                        batch_size=1000, compute=ray.data.ActorPoolStrategy(size=4), num_cpus=1)
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | dict[str, bytes],
        *,
        column: str = "image",
        device: str = "cpu",
        threads: int = 1,
        logits: bool = False,
    ) -> None:
        self.column, self.logits = column, logits
        if not isinstance(model, dict):
            self.network = Network(model, device=device, threads=threads)
            return
        with tempfile.TemporaryDirectory(prefix="convoy-") as folder:
            for name, data in model.items():
                Path(folder, Path(name).name).write_bytes(data)
            self.network = Network(folder, device=device, threads=threads)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Returns a batch with labels in place of the images.

        Args:
            batch: A dict of columns, NumPy arrays of one length.

        Returns:
            The columns of the batch without the images, with "label" (int32) and, if `logits`, "logits"
            (f32 [classes]).

        Raises:
            Error: The column is missing, or the images do not have the network's shape or type.
        """
        if self.column not in batch:
            raise Error(f"no column '{self.column}' among {sorted(batch)}. Name the images' column: column=...")
        rest = {name: values for name, values in batch.items() if name != self.column}
        images = batch[self.column]
        if images.dtype == object:
            shapes = sorted({np.shape(image) for image in images})
            raise Error(
                f"images of {len(shapes)} shapes, for example {shapes[0]} and {shapes[1]}, expected "
                f"{self.network.image_shape} (height, width, channels) for all of them. Resize them first."
            )
        images = np.ascontiguousarray(images)
        if not len(images):
            labels, values = np.empty(0, np.int32), np.empty((0, self.network.classes), np.float32)
        elif self.logits:
            labels, values = np.empty(len(images), np.int32), np.empty((len(images), self.network.classes), np.float32)
            self.network.run(images, labels=labels, logits=values)
        else:
            labels = self.network.labels(images)
        return {**rest, "label": labels, **({"logits": values} if self.logits else {})}


class _Worker(Classifier):
    """A Classifier for rows {"begin", "end"} that reads the images itself. None passes through the object store."""

    def __init__(self, model: list[Any], images: Images, resize: bool, **options: Any) -> None:
        super().__init__(_ray().get(model[0]), **options)
        self.reader = Reader(images, resize)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        numbers = np.concatenate([np.arange(*span) for span in zip(batch["begin"], batch["end"], strict=True)])
        return super().__call__({"id": numbers, self.column: self.reader.read(numbers)})


def classify(
    model: str | os.PathLike[str],
    source: str | os.PathLike[str],
    *,
    workers: int = 1,
    threads: int = 1,
    device: str = "cpu",
    batch: int = 1000,
    logits: bool = False,
    resize: bool = False,
) -> Iterator[Any]:
    """Computes the labels of many images on the connected Ray cluster.

    Every image has exactly one row, in order. If a worker dies, Ray runs its batches again in another one; the numbers
    of the rows are checked.

    Args:
        model: The model folder, a path.
        source: A folder of pictures, or an IDX file of u8 images, plain or gzip.
        workers: The number of processes.
        threads: The number of CPU threads of each process.
        device: "cpu", or "cuda": each process then has a GPU.
        batch: The number of images that a process computes at the same time.
        logits: Add the columns "logit0", "logit1" and so on.
        resize: Scale pictures to the network's size.

    Yields:
        Tables (pyarrow.Table) with the columns "image" (the number in the IDX file, or a picture's path under the
        folder) and "label".

    Raises:
        Error: The network or an image cannot be read, or the cluster has fewer CPUs than the workers need.
    """
    ray, files, network = _ray(), pack(model), Network(model)
    images = find_images(source, network.image_shape)
    have = ray.cluster_resources().get("CPU", 0)
    if workers * threads > have:
        raise Error(f"{workers} workers of {threads} threads: the cluster has {have:g} CPUs. Ask for fewer workers.")
    packed = ray.put(files)  # passed in a list below: Ray copies a direct argument for each worker
    context = ray.data.DataContext.get_current().copy()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = sys.stderr.isatty()
    with ray.data.DataContext.current(context):
        spans = [{"begin": i, "end": min(i + batch, images.count)} for i in range(0, images.count, batch)]
        # Ray runs a block again after a worker died. The rows are in memory, so only the workers need CPUs.
        blocks = min(len(spans), 8 * workers)
        rows = ray.data.from_items(spans, override_num_blocks=blocks).map_batches(
            _Worker,
            fn_constructor_args=([packed], images, resize),
            fn_constructor_kwargs={"device": device, "threads": threads, "logits": logits},
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=min(workers, blocks)),
            num_cpus=threads,
            **({"num_gpus": 1} if device.startswith("cuda") else {}),
        )
        done = 0
        try:
            for part in rows.iter_batches(batch_size=None, batch_format="numpy"):
                expected = np.arange(done, done + len(part["id"]))
                if not np.array_equal(part["id"], expected):
                    raise InternalError(f"rows {part['id']}, expected {expected}: a fault of convoy.ray. Please report "
                                        "it.")  # fmt: skip
                done += len(part["id"])
                yield _table(images, part)
        except ray.exceptions.RayError as error:
            raise Error(_reason(error)) from error
    if done != images.count:
        raise InternalError(f"{done} labels, expected {images.count}. This is a fault of convoy.ray: please report it.")


def _reason(error: BaseException) -> str:
    """Returns the text of the Error in a worker that ended the run, or Ray's own text if there is none."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, Error):
            return str(at)
        at = getattr(at, "cause", None) or at.__cause__
    found = [line.partition("Error: ")[2] for line in str(error).splitlines() if line.startswith("convoy.")]
    return found[-1] if found else str(error).strip().splitlines()[-1]


def _table(images: Images, part: dict[str, Any]) -> Any:
    """Returns a batch of results as a pyarrow.Table."""
    import pyarrow as pa

    names: Any = part["id"]
    if images.paths is not None:
        names = [os.path.relpath(images.paths[number], images.source) for number in part["id"]]
    columns = {"image": pa.array(names), "label": pa.array(part["label"])}
    for k, column in enumerate(part["logits"].T if "logits" in part else ()):
        columns[f"logit{k}"] = pa.array(np.ascontiguousarray(column))
    return pa.table(columns)


def write(tables: Iterator[Any], path: str | os.PathLike[str]) -> int:
    """Writes tables to one file, atomically: if it fails, no file is left.

    Args:
        tables: Tables as `classify` yields them.
        path: The file, whose name ends in .parquet or .csv.

    Returns:
        The number of rows.

    Raises:
        Error: The name has another ending, or the file cannot be written.
    """
    from pyarrow import csv, parquet

    path = Path(path)
    if path.suffix not in TABLES:
        raise Error(f"{path}: expected a name that ends in {' or '.join(TABLES)}.")
    writer = csv.CSVWriter if path.suffix == ".csv" else parquet.ParquetWriter
    temporary = path.with_name(path.name + ".tmp")
    rows = 0
    try:
        first = next(tables)
        with writer(str(temporary), first.schema) as out:
            for table in itertools.chain([first], tables):
                out.write_table(table)
                rows += len(table)
        os.replace(temporary, path)
    except OSError as error:
        raise FileError(f"{path}: {error}") from None
    finally:
        temporary.unlink(missing_ok=True)
    return rows


def connect(address: str | None, cpus: int) -> None:
    """Connects to a running cluster, or starts one on this machine for this process.

    A cluster that is started here has a token; other processes without the token cannot connect.

    Args:
        address: The address of a cluster, or "auto". None: start a cluster.
        cpus: The number of CPUs of a cluster that is started.

    Raises:
        Error: There is no cluster at this address, or it cannot be started.
    """
    if not address and "ray" not in sys.modules:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        if not any(name in os.environ for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")):
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    ray = _ray()
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address:
            ray.init(address=address, **quiet)
        else:
            store = 256 << 20  # only labels pass through it
            ray.init(address="local", num_cpus=cpus, object_store_memory=store, include_dashboard=False, **quiet)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise Error(f"no Ray cluster at {address or 'this machine'}: {error}") from None


if __name__ == "__main__":
    from convoy.ray_command import main

    main()
