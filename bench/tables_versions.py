"""A table of the other libraries' versions, from the records of every machine."""

import re

from tables_text import all_of

NAMES = {"torch": "PyTorch", "cudnn": "cuDNN", "jax": "JAX", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


def versions_of(result):
    """Every version that a record or one of its rows names."""
    rows = result.get("rows")
    parts = [{"torch": result["torch"]} if "torch" in result else {}, result.get("versions"),
             (result.get("peers") or {}).get("versions"),
             *(row.get("versions") for row in (rows if isinstance(rows, list) else []) if isinstance(row, dict))]
    return {name: version for part in parts if part for name, version in part.items() if name in NAMES}


def groups(machine):
    """[(versions, names of records)]: records whose versions contradict each other are in different groups."""
    found = []
    records = [(versions_of(result), name) for name, result in machine.results.items() if isinstance(result, dict)]
    for versions, name in sorted((one for one in records if one[0]), key=lambda one: (-len(one[0]), one[1])):
        for known, names in found:
            if all(known.get(key, version) == version for key, version in versions.items()):
                known.update(versions)
                names.append(name)
                break
        else:
            found.append((dict(versions), [name]))
    return found


def library(name, version):
    """"PyTorch 2.11.0 with CUDA 13.0", "cuDNN 9.19.0"."""
    if name == "cudnn":
        number = int(version)
        version = f"{number // 10000}.{number % 10000 // 100}.{number % 100}"
    if name == "torch" and (cuda := re.fullmatch(r"(.*)\+cu(\d+)(\d)", version)):
        version = f"{cuda[1]} with CUDA {cuda[2]}.{cuda[3]}"
    return f"{NAMES[name]} {version.split('-')[0]}"


def record(name, elsewhere):
    """A record's name without its mode; with its threads only if the same list has other versions elsewhere."""
    found = re.fullmatch(r"(.*)-(?:default|strict)-(\d+)t|(.*?)-(\d+)t", name)
    if not found:
        return f"`{name}`"
    base, threads = found[1] or found[3], found[2] or found[4]
    same = any(other.startswith(f"{base}-") for other in elsewhere)
    return f"`{base}` with {threads} thread{'' if threads == '1' else 's'}" if same else f"`{base}`"


def table(machines):
    """A row per machine and set of versions."""
    lines = ["| machine | records | the other libraries |", "|---|---|---|"]
    for machine in machines:
        found = groups(machine)
        for versions, names in found:
            elsewhere = [other for _, others in found if others is not names for other in others]
            which = "all" if len(found) == 1 else ", ".join(dict.fromkeys(record(name, elsewhere) for name in names))
            # CUDA's version matters only to a GPU.
            told = {name: version if machine.is_gpu() else version.split("+")[0] for name, version in versions.items()}
            libraries = all_of(library(name, told[name]) for name in NAMES if told.get(name, "absent") != "absent")
            absent = "".join(f"; without {NAMES[name]}" for name in NAMES if told.get(name) == "absent")
            lines.append(f"| {machine.short} | {which} | {libraries}{absent} |")
    return lines if len(lines) > 2 else []
