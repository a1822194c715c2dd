"""Times a spiking model folder in other libraries, on the CPU: a worker that bench/snn.py runs.

Prints one JSON object: for each peer images/s at its best batch and the median latency of one image, and
how many labels differ from PyTorch's. snn_network.py says which models it reads.

Every peer gets what makes it fast: frozen weights, the time steps unrolled, the first convolution computed
once for all steps, channels_last. Their clocks start at normalised fp32 images and stop at labels; Convoy's
starts at u8 images.
"""

import argparse
import json
import os
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
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from snn_network import Network, images_of, read_model  # noqa: E402

torch.set_num_threads(args.threads)
torch.set_grad_enabled(False)
inductor.freezing = True


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
    u8 = images_of(args.images)
    x = (torch.tensor(u8).float() / 255 - mean) / std
    channels_last = x.contiguous(memory_format=torch.channels_last)
    network = Network(steps, layers).eval()
    expected = network(x[:1000]).numpy()

    compiled = torch.compile(network)
    model = onnx_model(steps, layers, u8.shape[1:])
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
