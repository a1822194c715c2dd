"""Tables and sentences of the shipped spiking network, from what bench/snn.py and bench/snn_gpu.py wrote."""

from tables_text import on_day, prose, threads

SHIPPED = "10000"  # test images of the shipped network


def on_cpus(machines):
    return [(machine, result) for machine in machines for result in machine.results.values()
            if isinstance(result, dict) and "images_per_second" in result]


def on_gpus(machines):
    return [(machine, machine.results["snn-gpu"]) for machine in machines
            if machine.is_gpu() and "snn-gpu" in machine.results]


def fastest(times):
    """(name, time) of the least."""
    return min(times.items(), key=lambda named: named[1])


def sentence(machines):
    """README's paragraph on the network of the demo."""
    lines = []
    for machine, result in on_cpus(machines):
        alone = {name: 1e6 * peer["one_image_seconds"] for name, peer in result["peers"].items()}
        name, us = fastest(alone)
        lines += [*prose(
            f"{machine.short}, {threads(result)}{on_day(result)}: {result['images_per_second']:,.0f} images per "
            f"second, {result['throughput_ratio']:.1f} times as many as the fastest of PyTorch, ONNX Runtime "
            "and OpenVINO.",
            f"One image takes {1e6 * result['one_image_seconds']:.1f} µs; in the fastest other library ({name}) it "
            f"takes {us:.1f} µs."), ""]
    for machine, result in on_gpus(machines):
        if "peers" not in result:
            continue
        times = result["peers"]["times"]
        ours, one = device_times(result)[SHIPPED], 1e6 * result["run"]["one_image_seconds"]
        name, us = fastest({name: of["device_us"][SHIPPED] for name, of in times.items()})
        other, alone = fastest({name: of["host_us"]["one_image"] for name, of in times.items()})
        lines += [*prose(
            f"{machine.short}{on_day(result)}: 10,000 images in GPU memory take {ours:.0f} µs; in the fastest other "
            f"library ({name}) they take {us:,.0f} µs.",
            f"One image from host memory until its label is back in host memory takes {one:.1f} µs; in the fastest "
            f"other library ({other}) it takes {alone:.0f} µs."), ""]
    return lines[:-1]


def summary(machines):
    """A table per CPU."""
    lines = []
    for machine, result in on_cpus(machines):
        everyone = {"Convoy": result, **result["peers"]}
        lines += [f"{machine.short}, {threads(result)}, `{result['model']}`{on_day(result)}:", "",
                  "| library | images per second | one image, µs |", "|---|---:|---:|"]
        lines += [f"| {name} | {row['images_per_second']:,.0f} | {1e6 * row['one_image_seconds']:.1f} |"
                  for name, row in sorted(everyone.items(), key=lambda named: -named[1]["images_per_second"])]
        lines.append("")
    return lines[:-1]


def device_times(result):
    """Microseconds of Convoy on the device by the number of images, as text."""
    return {str(row["images"]): row["median_us"] for row in result["rows"]}


def gpu(machines):
    """A table per GPU, and one of other libraries in the same run."""
    lines = []
    for machine, result in on_gpus(machines):
        single = min((row["images"] for row in result["from_host"] if row["processes"] == 1), default=0)
        rest = f" (of one process from {single:,} images on)" if single else ""
        lines += [*prose(
            f"{machine.short}, `{result['model']}`, one launch of `{result['rows'][0]['kernel']}`"
            f"{on_day(result)}, median of {result['processes']} processes{rest}.",
            "*In GPU memory*: from u8 images in GPU memory to labels in GPU memory.",
            "*Host to host*: from images in host memory to labels in host memory, "
            f"{threads(result['from_host'][0])}."), "",
            "| images | in GPU memory, µs | million images/s | one launch per stage, µs | host to host, u8, µs "
            "| u8, page-locked | f32 |", "|---:|---:|---:|---:|---:|---:|---:|"]
        device = {row["images"]: row for row in result["rows"]}
        host = {row["images"]: row for row in result["from_host"]}
        for images in sorted({*device, *host}):
            there, here = device.get(images), host.get(images)
            cells = [f"{there['median_us']:,.1f}", f"{images / there['median_us']:.2f}",
                     f"{there['stage_by_stage_us']:,.0f}"] if there else [""] * 3
            cells += [f"{1e6 * here[key]:,.0f}" for key in
                      ("seconds", "pinned_u8_seconds", "pageable_f32_seconds")] if here else [""] * 3
            lines.append(f"| {images:,} | " + " | ".join(cells) + " |")
        if "peers" in result:
            lines += ["", *peers(result)]
        lines.append("")
    return lines[:-1]


def peers(result):
    """The same network in other libraries, from bench/peers_snn_gpu.py; their times over Convoy's in brackets."""
    device = device_times(result)
    of_images = {row["images"]: row for row in result["from_host"]}
    host = {"one_image": 1e6 * result["run"]["one_image_seconds"],
            **{key: 1e6 * of_images[10000][f"{key}_seconds"] for key in ("pinned_u8", "pageable_f32")}}
    versions, times = result["peers"]["versions"], result["peers"]["times"]
    batches = list(next(iter(times.values()))["device_us"])
    lines = [*prose(
        f"Other libraries in the same run (PyTorch {versions['torch']}, cuDNN {versions['cudnn']}; f32 without TF32).",
        "The number in brackets is their time divided by Convoy's.",
        "The times of the other libraries are replays of a CUDA graph, which leave out Python's time per call. The "
        "last column is an exception: it has ordinary calls.",
        "Convoy's times in GPU memory are replays of a CUDA graph too; its times from the host are ordinary calls of "
        "`Network::run`.",
        "The two columns of 10,000 host images: u8 in page-locked memory, and f32 in ordinary memory.",
        "Convoy's time for one image host to host is the median over single images of the test set; the row \"1\" "
        "of the table above is a run over a file with one image."), "",
        "| µs | " + " | ".join(f"{int(n):,} in GPU memory" for n in batches)
        + " | 1 host to host | 10,000 u8 | 10,000 f32 | one call from Python, 10,000 |",
        "|---|" + "---:|" * (len(batches) + 4),
        "| Convoy | " + " | ".join(f"{us:,.1f}" for us in [device[n] for n in batches] + list(host.values())) + " | |"]
    for name, of in times.items():
        cells = [f"{of['device_us'][n]:,.0f} ({of['device_us'][n] / device[n]:.1f})" for n in batches]
        cells += [f"{of['host_us'][key]:,.0f} ({of['host_us'][key] / us:.1f})" for key, us in host.items()]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {of['call_us']['10000']:,.0f} |")
    return lines
