// The longer docstrings, in Google style, and the signatures for the stubs. tests/python runs the
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

Making a plan chooses the kernel and packs the weights. Calling it computes the stage; `help` of
`Plan.run` has the shapes of all operands. Any number of threads may call one plan at the same
time; the GIL is released while it computes. A plan also works in a forked child process.

Args:
    stage: A `Stage` or its text. Its n is the largest number of images that one call may have.
    weights: An array [K, R, S, C/groups] in f32 or in the stage's type, with any strides.
        None: call `set_weights` or `use` before the first run.
    device: "cpu", "cuda" or, for example, "cuda:1".
    threads: The largest number of CPU threads. 0: the environment variable CONVOY_NUM_THREADS or,
        if it is not set, every core that the process may use.
    all_threads: Use all threads even if the stage is so small that fewer are predicted to be
        faster.
    kernel: The kernel's name, as `explain` prints it. "": the planner chooses.
    tile: The tile's name, as `explain` prints it. "": the planner chooses.
    concurrent_runs: How many calls can compute at the same time on the CPU, each with its own
        workspace in the plan, 1 to 64. Further calls wait. On a GPU any number of streams may run
        a plan.
    flip_filters: Flip the filters in both directions: true convolution instead of
        cross-correlation, which PyTorch computes.
    use_tuning: Read the tuning cache. False: only the cost model chooses.
    openmp: On the CPU, run on the threads of the OpenMP runtime that the process has loaded, as
        PyTorch's operators do. After each parallel region these threads spin for some
        milliseconds, on cores that other threads may need. Without such a runtime, Convoy's own
        threads are used.
    axes: The order in which arrays name their axes. "nhwc": Convoy's order [N, H, W, C]. "nchw":
        PyTorch's order for the same memory, a channels_last tensor [N, C, H, W]. "auto": shape
        and strides decide; a PyTorch tensor that could be both raises `InvalidOperand`.
    weights_layout: "krsc": weights are [K, R, S, C/groups]. "kcrs": PyTorch's order
        [K, C/groups, R, S].

Raises:
    Error: The stage is illegal (the message has every reason), or an option is wrong.
    Unsupported: No kernel takes the stage.
    NoDevice: This machine does not have the device.
    InvalidOperand: The weights have a wrong shape, type or device, or cannot be read as an array
        without a copy.
    OutOfMemory: Memory for the plan could not be allocated.

Example:
    >>> import numpy as np
    >>> weights = np.full((4, 3, 3, 2), 0.5, np.float32)
    >>> plan = convoy.Plan("n1h6c2k4r3pad1+bias+relu+max2", weights)
    >>> y = plan(np.ones((1, 6, 6, 2), np.float32), np.full(4, -8, np.float32))
    >>> y.shape, float(y.max())
    ((1, 3, 3, 4), 1.0)
)";

constexpr const char* document_of_run =
    R"(Computes the stage and returns y [[T,] N, P', Q', K].

No operand is copied. T is the number of time steps of a stage with a neuron, P and Q are the
height and width of the convolution's output, P' and Q' those after the pool. On a GPU the call
enqueues the work on a stream and returns without waiting. One exception: with arrays of JAX it
waits, because JAX does not tell its stream.

Args:
    x: An array [[T,] N, H, W, C] on the plan's device, with N from 0 to the plan's n and any
        pixel stride of at least C. A channels_last tensor [N, C, H, W] is taken as well; y is
        then a channels_last tensor too.
    bias: [K] f32, if the stage has `bias`.
    norm: A pair (scale, shift), each [C] f32, if the stage has `norm`.
    out: An array that y is written to. None: a new array is made by the library of x.
    pre: As `out`, for the values before the activation, [[T,] N, P, Q, K], if the stage has
        `keep(pre)`.
    act: As `out`, for the values after the activation, [[T,] N, P, Q, K], if the stage has
        `keep(act)`.
    idx: As `out`, for the positions of the pool's maxima, int32, of the shape of y, if the stage
        has `keep(idx)`.
    membrane: The membranes before the first time step, [N, P, Q, K] f32, if the stage has a
        neuron. None: all are 0.
    membrane_out: An array [N, P, Q, K] f32 that the membranes after the last time step are
        written to. None: they are not written.
    stream: On a GPU, the stream to run on: a cudaStream_t as an integer, or a stream of PyTorch
        or CuPy. None: the current stream of the library of x.

Returns:
    y, in `out` if that was given. A stage with `keep(...)` returns `Outputs(y, pre, act, idx)`.

Raises:
    InvalidOperand: An operand has a wrong shape, type, device or strides, an output is read-only,
        or an output overlaps another operand. While gradients are enabled, an output that is a
        PyTorch tensor requiring a gradient is refused too: a plan computes no gradients.
    NoWeights: The plan has no weights yet.
    Busy: Another thread is changing the weights.
    DeviceError: The GPU or its driver failed. Only in this case an output may have been written.

Example:
    >>> import numpy as np
    >>> plan = convoy.Plan("n2h4c1k1r1+relu+keep(idx)+max2", np.ones((1, 1, 1, 1), np.float32))
    >>> out = np.empty((2, 2, 2, 1), np.float32)
    >>> result = plan.run(np.arange(32, dtype=np.float32).reshape(2, 4, 4, 1), out=out)
    >>> result.y is out, result.idx[0, 0, 0, 0]
    (True, np.int32(5))
)";

constexpr const char* document_of_set_weights =
    R"(Packs weights for this plan only.

Later runs read the new weights. On a GPU the call waits for the stream's work. The array may be
freed afterwards.

Args:
    weights: An array as the constructor takes it.
    weights_layout: "krsc" or "kcrs", as the constructor takes it.
    stream: On a GPU, the stream that wrote the weights, as `run` takes it.

Raises:
    InvalidOperand: `weights` has a wrong shape, type or device, or cannot be read as an array
        without a copy. The former weights stay.
    Error: `weights_layout` is unknown.
    Busy: A run of this plan has not returned yet, or another thread is changing the weights.

Example:
    >>> import numpy as np
    >>> plan = convoy.Plan("n1h2c1k1r1")
    >>> plan.set_weights(np.full((1, 1, 1, 1), 3, np.float32))
    >>> plan(np.ones((1, 2, 2, 1), np.float32)).ravel().tolist()
    [3.0, 3.0, 3.0, 3.0]
)";

constexpr const char* document_of_pack =
    R"(Packs weights into an object that several plans can `use`.

Plans share packed weights if their `packing` is equal.

Args:
    weights: An array as the constructor takes it; it may be freed afterwards.
    weights_layout: "krsc" or "kcrs", as the constructor takes it.
    stream: On a GPU, the stream that wrote the weights, as `run` takes it.

Returns:
    The packed `Weights`.

Raises:
    InvalidOperand: `weights` has a wrong shape, type or device, or cannot be read as an array
        without a copy.

Example:
    >>> import numpy as np
    >>> large, small = convoy.Plan("n8h8c16k16r1"), convoy.Plan("n1h8c16k16r1")
    >>> if large.packing == small.packing:
    ...     weights = large.pack(np.zeros((16, 1, 1, 16), np.float32))
    ...     large.use(weights), small.use(weights)
    (None, None)
)";

constexpr const char* document_of_repack =
    R"(Packs weights that are in the GPU's memory, on that GPU and in the stream's order.

Runs that are enqueued later on that stream read the new weights. The call does not wait for the
GPU, except the first call and a call with weights of other strides. A CUDA graph may capture it
after the first call: each launch of the graph then packs the values that the weights hold at that
moment. The result has the same bits as after `set_weights`.

Args:
    weights: An array on the plan's GPU, in f32 or in the stage's type, with any strides.
    weights_layout: "krsc" or "kcrs", as the constructor takes it.
    stream: The stream to pack on, as `run` takes it.

Raises:
    Error: The first call is in a capture.
    Unsupported: The plan is on the CPU, or its kernel cannot repack.
    InvalidOperand: `weights` has a wrong shape, type or device, or cannot be read as an array
        without a copy.

Example:
    Weights of a layer in training, packed after each step of the optimizer::

        plan.repack(layer.weight.detach(), weights_layout="kcrs")
)";

constexpr const char* document_of_explain =
    R"(Explains why this kernel and tile were chosen.

Returns:
    A text with the sizes, a verdict on each kernel, the tile, the wasted work, the predicted time
    and the bytes moved. It is a `Text`, which a prompt shows line by line.

Example:
    >>> print(convoy.Plan("n1h8c8k8r3pad1+relu").explain().splitlines()[0])
    n1h8w8c8k8r3pad1+relu
)";

constexpr const char* document_of_explain_json =
    R"(Returns the facts of `explain` as a dict: seconds, bytes, operations.

Example:
    >>> convoy.Plan("n1h8c8k8r3pad1+relu").explain_json()["stage"]
    'n1h8w8c8k8r3pad1+relu'
)";

constexpr const char* document_of_use =
    R"(Makes later runs read these weights, which other plans may use too.

Args:
    weights: What `pack` of a plan with an equal `packing` returned.

Raises:
    Error: The weights have another packing. The former weights stay.
    Busy: A run of this plan has not returned yet, or another thread is changing the weights.
)";

constexpr const char* document_of_weights =
    R"(Weights in the layout that a kernel reads, made by `Plan.pack`.

They never change. They exist as long as this object or a plan that uses them exists.

Example:
    >>> import numpy as np
    >>> plan = convoy.Plan("n1h2c1k1r1")
    >>> plan.use(plan.pack(np.ones((1, 1, 1, 1), np.float32)))
)";

}  // namespace convoy::python
