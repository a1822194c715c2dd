// The docstrings and signatures of convoy.Network, as documents.hpp.
#pragma once

namespace convoy::python {

constexpr const char* signature_of_network =
    "def __init__(self, folder: str | os.PathLike, *, device: str = 'cpu', threads: int = 0, "
    "batch: int = 0, spike_kernels: bool = True, weights: str = 'f32', openmp: bool = False) -> "
    "None";
constexpr const char* signature_of_from_text =
    "def from_text(text: str, parameters: dict[str, typing.Any], *, name: str = 'network', "
    "device: str = 'cpu', threads: int = 0, batch: int = 0, spike_kernels: bool = True, "
    "weights: str = 'f32', openmp: bool = False) -> Network";

constexpr const char* signature_of_network_run =
    "def run(self, images: typing.Any, *, logits: typing.Any = None, labels: typing.Any = None, "
    "stream: typing.Any = None) -> None";
constexpr const char* signature_of_named_run =
    "def run(self, inputs: dict[str, typing.Any], outputs: dict[str, typing.Any] | "
    "typing.Iterable[str] | None = None, *, stream: typing.Any = None) -> dict[str, typing.Any]";

constexpr const char* document_of_network =
    R"(A network with its weights, read from a model folder and ready to run on images.

docs/use/model-folders.md describes the folder. Any number of threads may run a network at the same
time. The GIL is released while a network runs.

Args:
    folder: The model folder, a path.
    device: "cpu", "cuda" or, for example, "cuda:1".
    threads: The largest number of CPU threads. 0: the environment variable CONVOY_NUM_THREADS or,
        if it is not set, every core that the process may use.
    batch: The largest number of images that layers outside the spike kernels compute at the same
        time; memory grows with the images of a run up to it, and results do not depend on it. 0: at
        most 256, and fewer if two neighbouring layers would take more than 256 MiB, or an eighth of
        a GPU's memory.
    spike_kernels: Use the kernels for inputs of 0 and 1 for the layers that they take. False:
        every layer is a plan.
    weights: "f32": weights as they are. "f16": each weight is rounded to an f16 number first.
    openmp: On the CPU, run on the threads of the OpenMP runtime that the process has loaded, as
        `Plan` does.

Raises:
    FileNotFound: A file is missing. As with the other errors, the message names it.
    FileError: A file cannot be read.
    InvalidFile: The content of a file is wrong.
    NoDevice: This machine does not have the device.
    OutOfMemory: Memory for the network could not be allocated.
    Error: A layer or an option is wrong.

Example:
    >>> import numpy as np
    >>> network = convoy.Network(convoy.demo_model())
    >>> images = np.zeros((3, 28, 28), np.uint8)
    >>> network(images).shape, network.labels(images).shape
    ((3, 10), (3,))
)";

constexpr const char* document_of_network_call =
    R"(Returns the logits of images as a new array.

Args:
    images: An array as `run` takes it.
    stream: On a GPU, the stream to run on, as `Plan.run` takes it.

Returns:
    The logits [N, classes] f32, an array of the images' library.

Raises:
    InvalidOperand: The array has a wrong shape, type, device or strides.
    Busy: 64 runs of this network are under way.
    DeviceError: The GPU or its driver failed.
    OutOfMemory: Memory for the run could not be allocated.
)";

constexpr const char* document_of_labels =
    R"(Returns the labels of images as a new array.

Args:
    images: An array as `run` takes it.
    stream: On a GPU, the stream to run on, as `Plan.run` takes it.

Returns:
    The labels [N] int32, an array of the images' library. The label of an image is the index of its largest
    logit, and the first of equal ones.

Raises:
    InvalidOperand: The array has a wrong shape, type, device or strides, or the last layer does
        not give one value per class.
    Busy: 64 runs of this network are under way.
    DeviceError: The GPU or its driver failed.
    OutOfMemory: Memory for the run could not be allocated.
)";

constexpr const char* document_of_warm =
    R"(Prepares runs of n images, so that the first of them is not slower than later ones.

The call starts threads, loads code, allocates buffers, and runs n images of zeros and then one.

Args:
    n: The number of images that a later run will have, at least 1.

Raises:
    Error: `n` is not above 0.
    Busy: Another run of this network is computing.
    DeviceError: The GPU or its driver failed.
    OutOfMemory: Memory could not be allocated.
)";

constexpr const char* document_of_profile =
    R"(Runs the network once and measures each layer.

On a GPU the host waits for each kernel, so a profiled run takes longer than other runs.

Args:
    images: An array as `run` takes it.

Returns:
    A list of seconds, one number per item of `layers`, summed over threads. If one kernel runs
    several layers, the time may be given to the first of them only.

Raises:
    InvalidOperand: The array has a wrong shape, type, device or strides.
    Busy: 64 runs of this network are under way.
)";

constexpr const char* document_of_network_run =
    R"(Runs the network on images and writes logits and labels to the arrays that you pass.

Args:
    images: A dense array [N, H, W, C], or [N, H, W] of one channel, of the network's type. A
        channels_last tensor [N, C, H, W] is taken as well. A network of u8 images also takes f32
        images, which must be normalised already.
    logits: An array [N, classes] f32 to write to. None: logits are not written.
    labels: An array [N] int32 to write to: the index of the largest logit, and the first of equal
        ones. None: labels are not written.
    stream: On a GPU, the stream to run on, as `Plan.run` takes it.

Raises:
    InvalidOperand: An array has a wrong shape, type, device or strides.
    Busy: 64 runs of this network are under way.
    DeviceError: The GPU or its driver failed.
    OutOfMemory: Memory for the run could not be allocated.

Example:
    >>> import numpy as np
    >>> network = convoy.Network(convoy.demo_model())
    >>> labels = np.full(2, -1, np.int32)
    >>> network.run(np.zeros((2, 28, 28), np.uint8), labels=labels)
    >>> bool((labels >= 0).all())
    True
)";

constexpr const char* document_of_named_run =
    R"(Runs the network on arrays by the names of its inputs and returns its outputs by their names.

`Network.inputs` and `Network.outputs` have the names, types and axes. N is the number of images, the
same in all arrays.

Args:
    inputs: A dict with a dense array [N, H, W, C] or [N, C] for each input, of its type. A
        channels_last tensor [N, C, H, W] is taken as well.
    outputs: A dict of arrays to write to, [N, H, W, C] or [N, C], with the time steps T in front if
        the output has them. A list of names: these outputs only, in new arrays. None: all outputs.
        New arrays are made by the library of the first input's array.
    stream: On a GPU, the stream to run on, as `Plan.run` takes it.

Returns:
    A dict with an array for each output that was asked for.

Raises:
    InvalidOperand: An input is missing, a name is none of the network's, two arrays overlap, or an
        array has a wrong shape, type, device or strides.
    Busy: 64 runs of this network are under way.
    DeviceError: The GPU or its driver failed.
    OutOfMemory: Memory for the run could not be allocated.

Example:
    >>> import numpy as np
    >>> network = convoy.Network(convoy.demo_model())
    >>> network.inputs[0].name, network.outputs[0].name
    ('images', 'mean')
    >>> network.run({"images": np.zeros((2, 28, 28, 1), np.uint8)})["mean"].shape
    (2, 10)
)";

constexpr const char* document_of_from_text =
    R"(Makes a network from memory: the text of network.txt and a dict of parameters.

Args:
    text: The content of network.txt (docs/use/model-folders.md).
    parameters: Arrays in host memory, with any strides, by the names that their files would have,
        as in PyTorch's state_dict: "conv1.weight" [K, C/groups, R, S], or [K, C] of a linear
        layer, "conv1.bias" [K], and weight, bias, running_mean and running_var [K] of a
        batch-norm. They may be freed afterwards.
    name: The name that error messages use for the text.
    device: As the constructor takes it.
    threads: As the constructor takes it.
    batch: As the constructor takes it.
    spike_kernels: As the constructor takes it.
    weights: As the constructor takes it.
    openmp: As the constructor takes it.

Returns:
    The `Network`.

Raises:
    Error: The text has a fault; the message names the line.
    InvalidOperand: A parameter is missing, has a wrong shape, cannot be read as an array without
        a copy, or changed while this call read it.

Example:
    >>> import numpy as np
    >>> network = convoy.Network.from_text("input f32:h4c1\nflatten\nfc k2+bias\n",
    ...     {"fc.weight": np.ones((2, 16), np.float32), "fc.bias": np.array([0, 1], np.float32)})
    >>> network(np.ones((1, 4, 4, 1), np.float32)).tolist()
    [[16.0, 17.0]]
)";

}  // namespace convoy::python
