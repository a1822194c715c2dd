// The docstrings and signatures of convoy.GraphBuilder, as documents.hpp.
#pragma once

namespace convoy::python {

constexpr const char* signature_of_normalise =
    "def normalise(self, x: GraphBuilder.Value, mean: float | typing.Iterable[float] = (), "
    "std: float | typing.Iterable[float] = (), *, name: str = '') -> GraphBuilder.Value";
constexpr const char* signature_of_convolution =
    "def convolution(self, x: GraphBuilder.Value, weights: typing.Any, bias: typing.Any = None, *, "
    "stride: int | tuple[int, int] = 1, pad: int | tuple[int, ...] = 0, "
    "dil: int | tuple[int, int] = 1, groups: int = 1, strict: bool = False, "
    "weights_layout: str = 'krsc', name: str = '') -> GraphBuilder.Value";
constexpr const char* signature_of_linear =
    "def linear(self, x: GraphBuilder.Value, weights: typing.Any, bias: typing.Any = None, *, "
    "name: str = '') -> GraphBuilder.Value";
constexpr const char* signature_of_batch_norm =
    "def batch_norm(self, x: GraphBuilder.Value, gamma: typing.Any, beta: typing.Any, "
    "mean: typing.Any, variance: typing.Any, *, eps: float = 1e-05, "
    "name: str = '') -> GraphBuilder.Value";
constexpr const char* signature_of_activation =
    "def activation(self, x: GraphBuilder.Value, act: Activation | str, *, soft: bool = False, "
    "name: str = '') -> GraphBuilder.Value";
constexpr const char* signature_of_max_pool =
    "def max_pool(self, x: GraphBuilder.Value, pool: Pool | int | tuple[int, int] | str, *, "
    "name: str = '') -> GraphBuilder.Value";
constexpr const char* signature_of_build =
    "def build(self, *, device: str = 'cpu', threads: int = 0, batch: int = 0, "
    "spike_kernels: bool = True, weights: str = 'f32', openmp: bool = False) -> Network";

constexpr const char* document_of_graph_builder =
    R"(Builds a `Network` operator by operator: several inputs and outputs, branches, slices.

Each function appends an operator and returns the `GraphBuilder.Value` that it gives. It copies its
parameters, which are arrays in host memory of type f32, f16 or bf16, with any strides. If it raises,
it appends nothing. The network fuses a convolution or a linear layer with the activation and the
pool that follow, if nothing else reads the values between them.

`name` of each operator is free text such as "layer1/conv:0", which no other operator has. Messages,
`describe` and `LayerReport.name` show it; a layer has the name of its convolution or linear layer.
"": the operator's word and a number, "convolution3".

A builder is used by one thread at a time.

Args:
    steps: T, the number of time steps of all neurons, 1 to 65536.

Raises:
    Error: In every function, an operand has another type or other axes than the operator takes, or
        a value belongs to another builder. The message has the operand and the expected one.
    InvalidOperand: In every function with parameters, one is None, cannot be read as an array
        without a copy, or has a value that is not finite.
    Busy: Another thread is in `build`.

Example:
    >>> import numpy as np
    >>> g = convoy.GraphBuilder()
    >>> x, z = g.input("x", "f32", (4, 4, 2)), g.input("z", "f32", (4, 4, 1))
    >>> ones = np.ones((3, 1, 1, 2), np.float32)
    >>> both = g.concat([g.activation(g.convolution(x, ones), "relu"), z])
    >>> g.output("small", g.max_pool(g.slice(both, 2, 2), 2))
    >>> network = g.build(threads=1)
    >>> images = {"x": np.ones((5, 4, 4, 2), np.float32), "z": np.zeros((5, 4, 4, 1), np.float32)}
    >>> small = network.run(images)["small"]
    >>> small.shape, small[0, 0, 0].tolist()
    ((5, 2, 2, 2), [2.0, 0.0])
)";

constexpr const char* document_of_graph_input =
    R"(Adds an input of the network.

Args:
    name: Its name, which no other input or output has.
    dtype: "u8", "f32", "f16" or "bf16". u8 images can only be read by `normalise`.
    axes: (H, W, C) of an image, or (C,) of a vector, each 1 to 2^31 - 1. A run gives arrays with
        the number of images in front: [N, H, W, C] or [N, C].

Returns:
    The value.

Raises:
    Error: The name is taken or empty, or the type or the axes are none of those.
)";

constexpr const char* document_of_normalise =
    R"(Appends (u/255 - mean)/std of u8 pixels, or (x - mean)/std of f32 ones, as f32.

Args:
    x: Images or vectors, u8 or f32.
    mean: A number, one number per channel, or none: 0.
    std: A number, one number per channel, or none: 1. It must not be 0.
    name: The operator's name, as `GraphBuilder` describes.
)";

constexpr const char* document_of_convolution =
    R"(Appends a convolution of an image x.

Args:
    x: An image [H, W, C].
    weights: The filters [K, R, S, C/groups].
    bias: [K]. None: there is no bias.
    stride: The distance between two positions of the filter, a number or (height, width).
    pad: Zeros around x: a number, (height, width), or (top, left, bottom, right).
    dil: The distance between two elements of the filter, a number or (height, width).
    groups: The number of groups of channels that are convolved apart, a divisor of C and K.
    strict: Use only algorithms that are exact on small integers.
    weights_layout: "krsc": as above. "kcrs": PyTorch's order [K, C/groups, R, S].
    name: The operator's name, as `GraphBuilder` describes.
)";

constexpr const char* document_of_linear =
    R"(Appends a linear layer: weights times a vector x, plus the bias.

Args:
    x: A vector [C]. `flatten` makes one of an image.
    weights: [K, C].
    bias: [K]. None: there is no bias.
    name: The operator's name, as `GraphBuilder` describes.
)";

constexpr const char* document_of_batch_norm =
    R"(Appends (x - mean)/sqrt(variance + eps)*gamma + beta, in which each channel has its own numbers.

Args:
    x: An image [H, W, C], or what a linear layer gives, [C].
    gamma: [C], PyTorch's `weight`.
    beta: [C], PyTorch's `bias`.
    mean: [C], PyTorch's `running_mean`.
    variance: [C], PyTorch's `running_var`.
    eps: The number that is added to the variance.
    name: The operator's name, as `GraphBuilder` describes.
)";

constexpr const char* document_of_activation =
    R"doc(Appends an activation of each element, or a neuron, which spikes in each time step.

Args:
    x: An image or a vector.
    act: An `Activation` or its text, for example "relu", "clip(-1,1)" or "lif(2,1)".
    soft: A neuron that spikes loses the threshold. False: its membrane becomes 0.
    name: The operator's name, as `GraphBuilder` describes.
)doc";

constexpr const char* document_of_max_pool =
    R"(Appends the maximum of each window of an image x.

Args:
    x: An image [H, W, C].
    pool: A `Pool`, its text, for example "3s2p1", or the window: a number or (height, width). The
        stride is then the window.
    name: The operator's name, as `GraphBuilder` describes.
)";

constexpr const char* document_of_concat =
    R"(Appends a concatenation: values side by side along the channels.

Args:
    values: A list of two or more values of equal type, height and width.
    name: The operator's name, as `GraphBuilder` describes.
)";

constexpr const char* document_of_slice =
    R"(Appends a slice: the channels [first, first + count) of x.

Args:
    x: An image or a vector.
    first: The first channel, from 0.
    count: The number of channels, at least 1.
    name: The operator's name, as `GraphBuilder` describes.
)";

constexpr const char* document_of_flatten =
    R"(Appends an image x as a vector [H*W*C].

Args:
    x: An image [H, W, C].
    channels_first: Take the values in PyTorch's order (C, H, W); then only linear layers may read the
        vector. False: in the order of memory, (H, W, C).
    name: The operator's name, as `GraphBuilder` describes.
)";

constexpr const char* document_of_mean_of_steps =
    R"(Appends the mean over the time steps, in f32.

Args:
    x: A value that a neuron made different in each time step.
    name: The operator's name, as `GraphBuilder` describes.
)";

constexpr const char* document_of_graph_output =
    R"(Makes the value an output of the network.

Args:
    name: Its name, which no other input or output has.
    x: The result of an operator.

Raises:
    Error: The name is taken or empty, or the value is an input or an output already.
)";

constexpr const char* document_of_describe =
    R"(Returns the operators so far as a text, one per line.

The text is a `Text`, which a prompt shows line by line.

Example:
    >>> g = convoy.GraphBuilder()
    >>> g.output("y", g.activation(g.input("x", "f32", (8,)), "relu"))
    >>> print(g.describe(), end="")
    input x: f32 8
    y: f32 8 = activation relu of x
    output y
)";

constexpr const char* document_of_build =
    R"(Makes a network of the operators so far. The builder may go on afterwards.

Args:
    device: As `Network` takes it.
    threads: As `Network` takes it.
    batch: As `Network` takes it.
    spike_kernels: As `Network` takes it.
    weights: As `Network` takes it.
    openmp: As `Network` takes it.

Returns:
    The `Network`.

Raises:
    Error: The graph has no output or no layer that a kernel runs, or an option is wrong.
    NoDevice: This machine does not have the device.
    OutOfMemory: Memory for the network could not be allocated.
)";

}  // namespace convoy::python
