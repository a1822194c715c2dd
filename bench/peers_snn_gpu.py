"""Times a spiking model folder in PyTorch and SpikingJelly, on a GPU: a worker that bench/snn_gpu.py runs.

Prints one JSON object: for each peer
- device_us: of each batch, from u8 images to labels on the device, as replays of a CUDA graph over several inputs;
- call_us: the same of one call from Python, without a graph, until its labels are there;
- host_us: from images to labels in the host's memory, a replay of a graph between the copies: one u8 image and 10,000,
  both page-locked, and 10,000 normalised f32 images in ordinary memory;
- labels_that_differ: from PyTorch's, of all images.

Every peer gets what makes it fast: the first convolution is computed once for all steps, cuDNN's algorithms are chosen
by measurement, and the compiler's kernels up to a batch of 1,000: of more images cuDNN's and cuBLAS's were always the
fastest, and to find that takes minutes. f32 without TF32, as Convoy's default. SpikingJelly's neurons take all steps at
once: its modules, and its own Triton kernels, which a module uses in training alone.
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path


def words():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 1000, 10000, 60000])
    parser.add_argument("--seconds", type=float, default=0.1, help="of each measurement")
    return parser.parse_args()


ARGS = words() if __name__ == "__main__" else None  # before the imports below: --help needs none of them
os.environ.setdefault("SJ_IF_CUDA_IMPLEMENTATION", "triton")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from peer_timing import launches_of, samples_of  # noqa: E402
from snn_network import Network, images_of, read_model  # noqa: E402

BUFFERS = 24  # inputs of a graph, at most
MOST = 10000  # images of a run from the host
TUNED = 1000  # images of the largest batch for which the compiler measures kernels


class SpikingJelly:
    """The network of its multi-step layers, with its modules for neurons or its own kernels."""

    def __init__(self, network, own):
        from spikingjelly.activation_based import functional, neuron
        self.network, self.functional = network, functional
        layers = [layer for layer in network.layers if layer.threshold is not None]
        if own:
            self.neurons = {layer.name: self.kernel(layer.threshold) for layer in layers}
            self.modules = torch.nn.ModuleList()
        else:
            self.neurons = {layer.name: neuron.IFNode(layer.threshold, 0.0, step_mode="m") for layer in layers}
            self.modules = torch.nn.ModuleList(self.neurons.values()).eval()

    def kernel(self, threshold):
        fire = self.functional.neuron.if_multi_step
        return lambda sums: fire(sums, torch.zeros_like(sums[0]), threshold, 0.0)[0]

    def __call__(self, x):
        self.functional.reset_net(self.modules)
        network, steps = self.network, self.network.steps
        y = network.apply_layer(network.layers[0], x).repeat(steps, 1, 1, 1)
        for i, layer in enumerate(network.layers):
            y = network.apply_layer(layer, y) if i else y
            if layer.threshold is not None:
                y = self.neurons[layer.name](y.unflatten(0, (steps, -1))).flatten(0, 1)
            y = F.max_pool2d(y, 2) if layer.pool else y
        return y.unflatten(0, (steps, -1)).mean(0).argmax(1)


class Peer:
    def __init__(self, forward, mean, std, compiled):
        self.forward, self.compiled = forward, compiled
        self.of_pixels = lambda pixels: forward((pixels.float() / 255 - mean) / std)

    def function(self, images):
        """From u8 pixels or from normalised f32 images, of the shape of these, to labels."""
        function = self.of_pixels if images.dtype == torch.uint8 else self.forward
        if not self.compiled:
            return function
        torch._dynamo.reset()
        mode = "max-autotune-no-cudagraphs" if len(images) <= TUNED else "default"
        return torch.compile(function, mode=mode, dynamic=False)


def seconds_between(run):
    """Of the work that `run` puts on the current stream, by the device's clock."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e-3


def captured(function, inputs, launches):
    """A graph of so many launches, and their outputs, which live as long as it does."""
    graph, outputs = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        outputs += [function(inputs[i % len(inputs)]) for i in range(launches)]
    return graph, outputs


def called(function, x, seconds):
    """The median of calls from Python, each until the device is idle."""
    samples, begin = [], time.perf_counter()
    while len(samples) < 3 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        function(x)
        torch.cuda.current_stream().synchronize()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)


def on_device(peer, pixels, batch, seconds):
    """Microseconds of a batch on the device, and of a call from Python."""
    count = min(BUFFERS, 1 + len(pixels) // batch)
    inputs = [pixels.roll(i, 0)[:batch].contiguous() for i in range(count)]
    function = peer.function(inputs[0])
    for _ in range(3):
        function(inputs[0])
    launches = launches_of(seconds_between(lambda: function(inputs[0])), count)
    graph, _outputs = captured(function, inputs, launches)

    def replay(times):
        return seconds_between(lambda: [graph.replay() for _ in range(times)]) / times / launches
    samples = samples_of(replay, launches)(seconds)
    return 1e6 * statistics.median(samples), 1e6 * called(function, inputs[0], seconds)


def from_host(peer, images, seconds):
    """Microseconds from images to labels in the host's memory."""
    x = torch.empty(images.shape, dtype=images.dtype, device="cuda")
    function = peer.function(images)
    x.copy_(images)
    for _ in range(3):
        function(x)
    graph, outputs = captured(function, [x], 1)
    labels = torch.empty(len(images), dtype=torch.int64, pin_memory=True)

    def run(source):
        x.copy_(source, non_blocking=True)
        graph.replay()
        labels.copy_(outputs[0], non_blocking=True)
    called(run, images, seconds)
    return 1e6 * called(run, images, seconds)


def main(args):
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    steps, mean, std, layers = read_model(args.model)
    network = Network(steps, layers, channels_last=False).eval().cuda()
    on_host = torch.tensor(images_of(args.images))
    normalised = (on_host.float() / 255 - mean) / std
    pixels = on_host.cuda()
    peers = {"PyTorch, eager": Peer(network, mean, std, False), "PyTorch, compiled": Peer(network, mean, std, True),
             "SpikingJelly, eager": Peer(SpikingJelly(network, False), mean, std, False),
             "SpikingJelly, its own kernels": Peer(SpikingJelly(network, True), mean, std, False)}
    expected = network(normalised.cuda())
    many = pixels.repeat(1 + max(args.batches) // len(pixels), 1, 1, 1)
    results = {}
    with torch.cuda.stream(torch.cuda.Stream()):
        for name, peer in peers.items():
            times = {batch: on_device(peer, many, batch, args.seconds) for batch in args.batches}
            hosts = {"one_image": on_host[:1].pin_memory(), "pinned_u8": on_host[:MOST].pin_memory(),
                     "pageable_f32": normalised[:MOST]}
            results[name] = {
                "device_us": {batch: us[0] for batch, us in times.items()},
                "call_us": {batch: us[1] for batch, us in times.items()},
                "host_us": {key: from_host(peer, images, args.seconds) for key, images in hosts.items()},
                "labels_that_differ": int((peer.function(pixels)(pixels) != expected).sum())}
    print(json.dumps({"versions": {"torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version())},
                      "peers": results}))


if __name__ == "__main__":
    main(ARGS)
