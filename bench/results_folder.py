"""Where results of a CPU are kept."""

import re


def folder_of(record):
    """The folder under bench/results of a record's machine: its name, family-model-stepping and instruction set.
    CPUs of several generations share a name: "Intel(R) Xeon(R) Processor"."""
    text = f"{record['machine']} {record['cpu_model']} {record['isa']}"
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
