"""Times a spiking model folder in other libraries, on the CPU: a worker that bench/snn.py runs.

Prints one JSON object: for each peer images/s at its best batch and the median latency of one image, and
how many labels differ from PyTorch's. Reads models like models/fashion-scnn: if() neurons with hard reset,
max2 pools, the same image in every step.

Every peer gets what makes it fast: frozen weights, the time steps unrolled, the first convolution computed
once for all steps, channels_last. Their clocks start at normalised fp32 images and stop at labels; Convoy's
starts at u8 images.
"""

import argparse
import gzip
import json
import os
import re
import statistics
import time
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model", type=Path)
parser.add_argument("images", type=Path)
parser.add_argument("--threads", type=int, default=os.cpu_count())
parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
parser.add_argument("--batches", type=int, nargs="+", default=[64, 250, 1000])
args = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(args.threads)

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
import openvino  # noqa: E402
import torch  # noqa: E402
import torch._inductor.config as inductor  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

torch.set_num_threads(args.threads)
torch.set_grad_enabled(False)
inductor.freezing = True


class Layer:
    """One line of network.txt with its weights."""

    def __init__(self, folder, name, text, shape):
        fields = dict(re.findall(r"([a-z]+)(\d+)", text.split("+")[0]))
        riders = text.split("+")[1:]
        self.name, self.k = name, int(fields["k"])
        self.r = int(fields["r"]) if "r" in fields else 0  # 0: linear
        self.pad = int(fields.get("pad", 0))
        self.pool = "max2" in riders
        neuron = [rider for rider in riders if rider.startswith("if(")]
        if set(riders) - {"bias", "max2"} - set(neuron):
            raise SystemExit(f"{name}: {text}: expected only bias, if(th) and max2")
        self.threshold = float(neuron[0][3:-1]) if neuron else None
        w = np.loadtxt(folder / f"{name}.weight.txt", dtype=np.float64).astype(np.float32)
        self.w = w.reshape((self.k, shape[0], self.r, self.r) if self.r else (self.k, -1))
        self.b = np.loadtxt(folder / f"{name}.bias.txt", dtype=np.float64).astype(np.float32)


def read_model(folder):
    shape, steps, mean, std, layers = None, 1, 0.0, 1.0, []
    for line in (folder / "network.txt").read_text().splitlines():
        words = line.split("#")[0].split()
        if not words or words[0] == "flatten":
            continue
        if words[0] == "input":
            h, w, c = (int(n) for n in re.match(r"u8:h(\d+)w(\d+)c(\d+)", words[1]).groups())
            shape = (c, h, w)
            for word in words[2:]:
                key, value = word[:-1].split("(")
                mean, std = (float(value), std) if key == "mean" else (mean, float(value))
        elif words[0] == "steps":
            steps = int(words[1])
        else:
            layers.append(Layer(folder, words[0], words[1], shape))
            shape = (layers[-1].k,)
    return steps, mean, std, layers


class Network(torch.nn.Module):
    """The unrolled graph, the first convolution once."""

    def __init__(self, steps, layers):
        super().__init__()
        self.steps, self.layers = steps, layers
        for layer in layers:
            w = torch.tensor(layer.w)
            if layer.r and layer.w.shape[1] > 1:
                w = w.contiguous(memory_format=torch.channels_last)
            self.register_buffer(layer.name + "_w", w)
            self.register_buffer(layer.name + "_b", torch.tensor(layer.b))

    def apply_layer(self, layer, x):
        w, b = getattr(self, layer.name + "_w"), getattr(self, layer.name + "_b")
        if layer.r:
            return F.conv2d(x, w, b, padding=layer.pad)
        return F.linear(x.flatten(1), w, b)

    def forward(self, x):
        held = self.apply_layer(self.layers[0], x)
        membranes, total = {}, None
        for _ in range(self.steps):
            y = held
            for i, layer in enumerate(self.layers):
                if i:
                    y = self.apply_layer(layer, y)
                if layer.threshold is not None:
                    v = membranes[i] + y if i in membranes else y
                    spike = v >= layer.threshold
                    membranes[i] = torch.where(spike, 0.0, v)
                    y = spike.to(torch.float32)
                if layer.pool:
                    y = F.max_pool2d(y, 2)
            total = y if total is None else total + y
        return (total / self.steps).argmax(1)


def onnx_model(steps, layers, shape):
    nodes, init, count = [], [], 0

    def constant(array):
        init.append(numpy_helper.from_array(np.asarray(array), f"c{len(init)}"))
        return init[-1].name

    def node(op, *inputs, **attributes):
        nonlocal count
        count += 1
        nodes.append(helper.make_node(op, list(inputs), [f"v{count}"], **attributes))
        return f"v{count}"

    weights = [(constant(layer.w), constant(layer.b)) for layer in layers]

    def apply_layer(i, x):
        layer, (w, b) = layers[i], weights[i]
        if layer.r:
            return node("Conv", x, w, b, pads=[layer.pad] * 4)
        return node("Gemm", node("Flatten", x, axis=1), w, b, transB=1)

    held, membranes, total = apply_layer(0, "x"), {}, None
    zero = constant(np.float32(0))
    for t in range(steps):
        y = held
        for i, layer in enumerate(layers):
            if i:
                y = apply_layer(i, y)
            if layer.threshold is not None:
                v = node("Add", membranes[i], y) if i in membranes else y
                spike = node("GreaterOrEqual", v, constant(np.float32(layer.threshold)))
                if t + 1 < steps:
                    membranes[i] = node("Where", spike, zero, v)
                y = node("Cast", spike, to=TensorProto.FLOAT)
            if layer.pool:
                y = node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
        total = y if total is None else node("Add", total, y)
    nodes.append(helper.make_node("ArgMax", [total], ["label"], axis=1, keepdims=0))
    graph = helper.make_graph(
        nodes, "snn", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape])],
        [helper.make_tensor_value_info("label", TensorProto.INT64, ["n"])], init)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def throughput(run, x, batch):
    """Images/s of run(images) over all images, the best of the passes that fit into the time."""
    parts = [x[i:i + batch] for i in range(0, len(x) - batch + 1, batch)]
    for part in parts[:3]:
        run(part)
    best, begin = 0.0, time.perf_counter()
    while best == 0 or time.perf_counter() - begin < args.seconds:
        start = time.perf_counter()
        for part in parts:
            run(part)
        best = max(best, len(parts) * batch / (time.perf_counter() - start))
    return best


def latency(run, x):
    for i in range(20):
        run(x[i:i + 1])
    samples, begin = [], time.perf_counter()
    while time.perf_counter() - begin < args.seconds:
        i = len(samples) % len(x)
        start = time.perf_counter()
        run(x[i:i + 1])
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)


def main():
    steps, mean, std, layers = read_model(args.model)
    opened = gzip.open if args.images.suffix == ".gz" else open
    with opened(args.images, "rb") as file:
        data = file.read()
    n, h, w = (int.from_bytes(data[4 * i:4 * i + 4], "big") for i in (1, 2, 3))
    u8 = np.frombuffer(data, np.uint8, offset=16).reshape(n, 1, h, w)
    x = (torch.tensor(u8).float() / 255 - mean) / std
    channels_last = x.contiguous(memory_format=torch.channels_last)
    network = Network(steps, layers).eval()
    expected = network(x[:1000]).numpy()

    compiled = torch.compile(network)
    model = onnx_model(steps, layers, (1, h, w))
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    core = openvino.Core()
    ov_model = core.read_model(model.SerializeToString())
    ov = {}
    for hint in ("THROUGHPUT", "LATENCY"):
        ov[hint] = core.compile_model(ov_model, "CPU", {
            "INFERENCE_NUM_THREADS": args.threads, "PERFORMANCE_HINT": hint, "INFERENCE_PRECISION_HINT": "f32",
            "NUM_STREAMS": 1}).create_infer_request()
    label = ov_model.output(0).any_name

    peers = {
        "PyTorch, eager": (lambda part: network(part).numpy(), channels_last),
        "PyTorch, compiled": (lambda part: compiled(part).numpy(), channels_last),
        "ONNX Runtime": (lambda part: session.run(None, {"x": part})[0], x.numpy()),
        "OpenVINO, throughput": (lambda part: ov["THROUGHPUT"].infer({"x": part}, share_inputs=True)[label], x.numpy()),
        "OpenVINO, latency": (lambda part: ov["LATENCY"].infer({"x": part}, share_inputs=True)[label], x.numpy()),
    }
    results = {}
    for name, (run, images) in peers.items():
        got = np.array(run(images[:1000])).reshape(-1)
        rates = {}
        for batch in args.batches:
            rates[batch] = throughput(run, images, batch)
        best = max(rates, key=rates.get)
        results[name] = {"images_per_second": rates[best], "batch": best, "one_image_seconds": latency(run, images),
                         "labels_that_differ_in_1000": int((got != expected).sum())}
    versions = {"torch": torch.__version__, "onnxruntime": onnxruntime.__version__, "openvino": openvino.__version__}
    print(json.dumps({"threads": args.threads, "versions": versions, "peers": results}))


main()
