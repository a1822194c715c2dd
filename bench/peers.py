"""Times one stage in other libraries, on the CPU: a worker that `convoy bench --peers` talks to.

Reads one JSON object a line from standard input, answers with one on standard output:
  {"op": "prepare", "stage": {...}, "threads": 2}  -> {"peers": [...], "left_out": [...]}
  {"op": "time", "peer": NAME, "seconds": 0.1}     -> {"samples": [seconds, ...]}

Every peer gets what makes it fast: frozen weights, outputs that it may reuse, its own layout and
ours (NHWC in and out), full fp32. Every peer's result is checked against PyTorch in double.
"""

import argparse
import json
import os
import sys
import time

if __name__ == "__main__":  # before the imports below: --help needs none of them
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()

threads = int(os.environ.get("CONVOY_PEER_THREADS", os.cpu_count()))
os.environ.setdefault("OMP_NUM_THREADS", str(threads))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

torch.set_num_threads(threads)
try:
    torch.set_num_interop_threads(1)
except RuntimeError:
    pass


class Stage(torch.nn.Module):
    """conv + bias, activation, pool: what the compiler sees."""

    def __init__(self, s, dtype=torch.float32):
        super().__init__()
        rng = np.random.default_rng(1)
        fan = s["c"] // s["groups"] * s["r"] * s["s"]
        w = rng.standard_normal((s["k"], s["c"] // s["groups"], s["r"], s["s"])) / np.sqrt(fan)
        self.weight = torch.nn.Parameter(torch.tensor(w, dtype=dtype), requires_grad=False)
        b = torch.tensor(rng.standard_normal(s["k"]), dtype=dtype) if s["bias"] else None
        self.bias = torch.nn.Parameter(b, requires_grad=False) if s["bias"] else None
        self.s = s

    def forward(self, x):
        s = self.s
        top, left, bottom, right = s["pad"]
        pad = (top, left)
        if (top, left) != (bottom, right):
            x, pad = F.pad(x, (left, right, top, bottom)), 0
        y = F.conv2d(x, self.weight, self.bias, s["stride"], pad, s["dil"], s["groups"])
        act = s["act"]
        if act == "relu":
            y = F.relu(y)
        elif act == "relu6":
            y = F.relu6(y)
        elif act == "clip":
            y = torch.clamp(y, s["lo"], s["hi"])
        elif act == "leaky":
            y = F.leaky_relu(y, s["slope"])
        elif act:
            raise RuntimeError(f"the activation {act}, which this file does not know")
        p = s["pool"]
        if p:
            y = F.max_pool2d(y, p["window"], p["stride"], p["pad"], p["dil"], p["ceil"])
        return y


def onnx_model(s, module, nhwc):
    """The stage as an ONNX graph; with `nhwc` its input and output are transposed inside."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    top, left, bottom, right = s["pad"]
    nodes, init = [], [numpy_helper.from_array(module.weight.numpy(), "w")]
    inputs = ["x", "w"]
    if s["bias"]:
        init.append(numpy_helper.from_array(module.bias.numpy(), "bias"))
        inputs.append("bias")
    if nhwc:
        nodes.append(helper.make_node("Transpose", ["x"], ["x_nchw"], perm=[0, 3, 1, 2]))
        inputs[0] = "x_nchw"
    last = "conv"
    nodes.append(helper.make_node("Conv", inputs, [last], strides=s["stride"], group=s["groups"],
                                  pads=[top, left, bottom, right], dilations=s["dil"],
                                  kernel_shape=[s["r"], s["s"]]))
    act = s["act"]
    if act == "relu":
        nodes.append(helper.make_node("Relu", [last], ["act"]))
        last = "act"
    elif act in ("relu6", "clip"):
        lo, hi = (0.0, 6.0) if act == "relu6" else (s["lo"], s["hi"])
        init += [numpy_helper.from_array(np.float32(lo), "lo"), numpy_helper.from_array(np.float32(hi), "hi")]
        nodes.append(helper.make_node("Clip", [last, "lo", "hi"], ["act"]))
        last = "act"
    elif act == "leaky":
        nodes.append(helper.make_node("LeakyRelu", [last], ["act"], alpha=s["slope"]))
        last = "act"
    p = s["pool"]
    if p:
        nodes.append(helper.make_node("MaxPool", [last], ["pool"], kernel_shape=p["window"],
                                      strides=p["stride"], pads=p["pad"] * 2, dilations=p["dil"],
                                      ceil_mode=int(p["ceil"])))
        last = "pool"
    if nhwc:
        nodes.append(helper.make_node("Transpose", [last], ["y"], perm=[0, 2, 3, 1]))
    else:
        nodes[-1].output[0] = "y"
    shape = [s["n"], s["h"], s["w"], s["c"]] if nhwc else [s["n"], s["c"], s["h"], s["w"]]
    graph = helper.make_graph(nodes, "stage",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, list("npqk"))], init)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model.SerializeToString()


def torch_peer(module, x, compiled):
    module = module.to(memory_format=torch.channels_last).eval()
    x = x.to(memory_format=torch.channels_last)
    if compiled:
        import torch._inductor.config as config

        config.freezing = True
        module = torch.compile(module)

    def run():
        with torch.inference_mode():
            return module(x)

    return run, lambda: run().contiguous().numpy()


def onnxruntime_peer(model, x, y_shape, nhwc):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    y = np.empty(y_shape, np.float32)
    binding = session.io_binding()
    x_value, y_value = ort.OrtValue.ortvalue_from_numpy(x), ort.OrtValue.ortvalue_from_numpy(y)
    binding.bind_ortvalue_input("x", x_value)
    binding.bind_ortvalue_output("y", y_value)

    def result():
        session.run_with_iobinding(binding)
        out = y_value.numpy()
        return out.transpose(0, 3, 1, 2) if nhwc else out

    return (lambda: session.run_with_iobinding(binding)), result


def openvino_peer(model, x, nhwc):
    import openvino as ov

    core = ov.Core()
    graph = core.read_model(model)
    compiled = core.compile_model(graph, "CPU", {
        "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32"})
    request = compiled.create_infer_request()
    request.set_input_tensor(ov.Tensor(x, shared_memory=True))

    def result():
        request.infer()
        out = request.get_output_tensor().data
        return out.transpose(0, 3, 1, 2) if nhwc else out

    return request.infer, result


class Bench:
    def __init__(self, stage):
        self.runs, self.left_out = {}, []
        module = Stage(stage)
        x = torch.tensor(np.random.default_rng(2).standard_normal(
            (stage["n"], stage["c"], stage["h"], stage["w"])), dtype=torch.float32)
        with torch.inference_mode():
            want = Stage(stage, torch.float64)(x.double()).numpy()
        nhwc_x = np.ascontiguousarray(x.numpy().transpose(0, 2, 3, 1))
        n, k, p, q = want.shape
        makers = {
            "pytorch eager": lambda: torch_peer(Stage(stage), x, False),
            "pytorch compiled": lambda: torch_peer(Stage(stage), x, True),
            "onnxruntime": lambda: onnxruntime_peer(onnx_model(stage, module, False), x.numpy(), (n, k, p, q), False),
            "onnxruntime nhwc": lambda: onnxruntime_peer(onnx_model(stage, module, True), nhwc_x, (n, p, q, k), True),
            "openvino": lambda: openvino_peer(onnx_model(stage, module, False), x.numpy(), False),
            "openvino nhwc": lambda: openvino_peer(onnx_model(stage, module, True), nhwc_x, True),
        }
        for name, make in makers.items():
            try:
                run, result = make()
                error = np.abs(result() - want).max() / max(np.abs(want).max(), 1e-30)
                if not error < 1e-4:
                    raise RuntimeError(f"wrong result, error {error:.1e}")
                for _ in range(3):
                    run()
                self.runs[name] = run
            except Exception as error:  # a peer that can't run the stage is named, not hidden
                self.left_out.append({"name": name, "why": str(error).splitlines()[0][:200]})

    def time(self, name, seconds):
        run, samples = self.runs[name], []
        run()
        start = time.perf_counter()
        elapsed = 0.0
        while elapsed < seconds or (len(samples) < 3 and elapsed < 4 * seconds):
            begin = time.perf_counter()
            run()
            end = time.perf_counter()
            samples.append(end - begin)
            elapsed = end - start
        return samples


def versions():
    found = {"torch": torch.__version__}
    for package in ("onnxruntime", "openvino"):
        try:
            found[package] = __import__(package).__version__
        except ImportError:
            found[package] = "absent"  # its peers are in left_out
    return found


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not mix with our answers
    bench = None
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "prepare":
            bench = Bench(request["stage"])
            answer = {"peers": list(bench.runs), "left_out": bench.left_out, "versions": versions(),
                      "threads": threads}
        else:
            answer = {"samples": bench.time(request["peer"], request["seconds"])}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
