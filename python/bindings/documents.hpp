// Docstrings of more than a few lines, and signatures as the stubs have them. tests/python runs the
// examples.
#pragma once

namespace convoy::python {

constexpr const char* signature_of_plan =
    "def __init__(self, stage: Stage | str, weights: typing.Any = None, *, device: str = 'cpu', "
    "threads: int = 0, all_threads: bool = False, kernel: str = '', tile: str = '', "
    "concurrent_runs: int = 1, flip_filters: bool = False, use_tuning: bool = True, "
    "openmp: bool = False, "
    "axes: str = 'auto', weights_layout: str = 'krsc') -> None";
#define CONVOY_RUN_ARGUMENTS                                                               \
  "(self, x: typing.Any, bias: typing.Any = None, *, norm: typing.Any = None, "            \
  "out: typing.Any = None, pre: typing.Any = None, act: typing.Any = None, "               \
  "idx: typing.Any = None, membrane: typing.Any = None, membrane_out: typing.Any = None, " \
  "stream: typing.Any = None) -> typing.Any"
constexpr const char* signature_of_call = "def __call__" CONVOY_RUN_ARGUMENTS;
constexpr const char* signature_of_run = "def run" CONVOY_RUN_ARGUMENTS;
#undef CONVOY_RUN_ARGUMENTS

constexpr const char* document_of_plan =
    R"(A stage bound to a device, a kernel and a tile, ready to run.

stage: a Stage or its text; its n is the most images that a call may have.
weights: [K, R, S, C/groups] f32 or of the stage's type, any strides; None: set_weights before a run.
    weights_layout="kcrs" takes PyTorch's order [K, C/groups, R, S].
device: "cpu", "cuda", "cuda:1". threads: 0 is CONVOY_NUM_THREADS, else every core.
kernel, tile: by name, as `explain` prints them; "": the planner chooses.
concurrent_runs: on the CPU, calls that compute at once with workspace of the plan's own; further ones
    wait. On a GPU any number of streams may run a plan.
openmp: on the CPU, run on the threads of the OpenMP runtime that the process has, as PyTorch's
    operators do, where it has one. Those spin for milliseconds behind each of its regions.
axes: what arrays call their axes. "nhwc" is Convoy's own [N, H, W, C]; "nchw" is PyTorch's name for
    the same memory, a channels_last tensor [N, C, H, W]; "auto" tells by shape and strides, and
    raises InvalidOperand where a tensor of PyTorch could be both.

Raises Error where the stage is illegal, with every reason, and where no kernel fits. Any number of
threads may call one plan; the GIL is released meanwhile. It can be used in a forked child.

    >>> import numpy as np
    >>> weights = np.full((4, 3, 3, 2), 0.5, np.float32)
    >>> plan = convoy.Plan("n1h6c2k4r3pad1+bias+relu+max2", weights)
    >>> y = plan(np.ones((1, 6, 6, 2), np.float32), np.full(4, -8, np.float32))
    >>> y.shape, float(y.max())
    ((1, 3, 3, 4), 1.0)
)";

constexpr const char* document_of_run = R"(Computes the stage, and returns y [[T,] N, P', Q', K].

x: [[T,] N, H, W, C] (a channels_last tensor [N, C, H, W] too, and y is then one as well), any pixel
    stride >= C, N at most the plan's; on the plan's device. Nothing is copied.
bias: [K] f32. norm: (scale, shift), [C] f32 each. membrane, membrane_out: [N, P, Q, K] f32, before
    and after the steps. Each where the stage has it.
out, and with keep(...) pre, act [[T,] N, P, Q, K] and idx (int32, as y): written where given; else
    new arrays are made by x's library, NumPy's, PyTorch's and so on. A stage that keeps something
    returns Outputs(y, pre, act, idx).
stream: of a GPU: an integer, a stream of PyTorch or CuPy; None: the current one of x's library.
    The work is enqueued, and nobody waits, but for arrays of JAX.

Raises InvalidOperand (shape, type, device, strides, read-only or overlapping outputs), NoWeights,
Busy (weights are changing), DeviceError. Nothing was written then, except with DeviceError. No
gradients are kept of what is computed here: with gradients on, a tensor of PyTorch
that requires one is refused as an output.

    >>> import numpy as np
    >>> plan = convoy.Plan("n2h4c1k1r1+relu+keep(idx)+max2", np.ones((1, 1, 1, 1), np.float32))
    >>> out = np.empty((2, 2, 2, 1), np.float32)
    >>> result = plan.run(np.arange(32, dtype=np.float32).reshape(2, 4, 4, 1), out=out)
    >>> result.y is out, result.idx[0, 0, 0, 0]
    (True, np.int32(5))
)";

constexpr const char* document_of_set_weights = R"(Packs weights, for this plan alone.

weights: as the constructor takes them; they may be freed afterwards. On a GPU it waits for the
stream's work. Raises InvalidOperand, Error, and Busy while a run is under way.

    >>> import numpy as np
    >>> plan = convoy.Plan("n1h2c1k1r1")
    >>> plan.set_weights(np.full((1, 1, 1, 1), 3, np.float32))
    >>> plan(np.ones((1, 2, 2, 1), np.float32)).ravel().tolist()
    [3.0, 3.0, 3.0, 3.0]
)";

constexpr const char* document_of_pack =
    R"(Packs weights into an object that plans of one packing `use` together.

    >>> import numpy as np
    >>> large, small = convoy.Plan("n8h8c16k16r1"), convoy.Plan("n1h8c16k16r1")
    >>> if large.packing == small.packing:
    ...     weights = large.pack(np.zeros((16, 1, 1, 16), np.float32))
    ...     large.use(weights), small.use(weights)
    (None, None)
)";

constexpr const char* document_of_repack =
    R"(Packs weights that are on the plan's GPU, on the GPU and in the order of the stream.

Runs that are called later on that stream read them. Nothing waits for the GPU, except the first call and
one for weights with other strides. A CUDA graph may capture it after a first call: each launch of the
graph packs what the weights hold then. The weights are f32 or the stage's type, of any strides. The bits
are those of set_weights. Raises Error on the CPU.

    plan.repack(layer.weight.detach(), weights_layout="kcrs")
)";

constexpr const char* document_of_explain =
    R"(Why this kernel: sizes, each kernel's verdict, tile, waste, predicted time, bytes moved.

A str that prints itself where Python would show its repr.

    >>> print(convoy.Plan("n1h8c8k8r3pad1+relu").explain().splitlines()[0])
    n1h8w8c8k8r3pad1+relu
)";

constexpr const char* document_of_weights =
    R"(Weights in the layout that a kernel wants, made by Plan.pack; they never change.

    >>> import numpy as np
    >>> plan = convoy.Plan("n1h2c1k1r1")
    >>> plan.use(plan.pack(np.ones((1, 1, 1, 1), np.float32)))
)";

constexpr const char* signature_of_network =
    "def __init__(self, folder: str | os.PathLike, *, device: str = 'cpu', threads: int = 0, "
    "batch: int = 256, spike_kernels: bool = True, weights: str = 'f32', openmp: bool = False) -> "
    "None";
constexpr const char* signature_of_from_text =
    "def from_text(text: str, parameters: dict[str, typing.Any], *, name: str = 'network', "
    "device: str = 'cpu', threads: int = 0, batch: int = 256, spike_kernels: bool = True, "
    "weights: str = 'f32', openmp: bool = False) -> Network";

constexpr const char* document_of_network =
    R"(A network with its weights: a model folder (docs/use/networks.md), ready to run over images.

device, threads, openmp: as Plan takes them. batch: images that layers outside the spike kernels handle at
once; memory grows with it, results do not depend on it. weights: "f16" rounds each to an f16 number first.

Raises Error (a file or a parameter that is missing or wrong, by its name). One run at a time: a
second one meanwhile raises Busy. The GIL is released while it runs.

    >>> import numpy as np
    >>> network = convoy.Network(convoy.demo_model())
    >>> images = np.zeros((3, 28, 28), np.uint8)
    >>> network(images).shape, network.labels(images).shape
    ((3, 10), (3,))
)";

constexpr const char* document_of_network_run =
    R"(Computes images, and writes logits and labels where they are given.

images: [N, H, W, C], or [N, H, W] of one channel, dense, of the network's type (a channels_last
    tensor [N, C, H, W] too); f32 images for a network of u8 ones are normalised already.
logits: [N, classes] f32. labels: [N] int32, the first of equals. stream: as Plan.run takes it.
Raises InvalidOperand, Busy, DeviceError, OutOfMemory.

    >>> import numpy as np
    >>> network = convoy.Network(convoy.demo_model())
    >>> labels = np.full(2, -1, np.int32)
    >>> network.run(np.zeros((2, 28, 28), np.uint8), labels=labels)
    >>> bool((labels >= 0).all())
    True
)";

constexpr const char* document_of_from_text =
    R"(A network from memory: network.txt as a text, and arrays by the names that their files have.

parameters: as in PyTorch's state_dict: "conv1.weight" [K, C/groups, R, S], a linear layer's [K, C],
    "conv1.bias" [K], a batch-norm's weight, bias, running_mean and running_var; on the host, any
    strides. They may be freed afterwards.

    >>> import numpy as np
    >>> network = convoy.Network.from_text("input f32:h4c1\nflatten\nfc k2+bias\n",
    ...     {"fc.weight": np.ones((2, 16), np.float32), "fc.bias": np.array([0, 1], np.float32)})
    >>> network(np.ones((1, 4, 4, 1), np.float32)).tolist()
    [[16.0, 17.0]]
)";

}  // namespace convoy::python
