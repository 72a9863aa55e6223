#!/usr/bin/env python3
"""Compares what CUDA kernels take with services/worker/kernels/cuda/budgets.tsv.

  tools/kernel_budgets.py [--write] OBJECT...     object files of nvcc with machine code

A row is a kernel; its instances and the machine code of all architectures count together:

  registers      most registers of a thread
  stack_bytes    most local memory of a thread: registers that were spilled, and arrays
  shared_bytes   most static shared memory of a block
  load_bits      widest load from global memory, on the architecture where it is narrowest
  tensor_cores   whether all architectures have an instance that multiplies on tensor cores

The check fails for a kernel that takes more registers, stack or shared memory than its row, whose
widest load is narrower, that no longer uses tensor cores, that has no row, or whose row has no
kernel. --write makes the file of what is measured. cuobjdump and nvdisasm are CUDA's.
"""

import argparse
import csv
import dataclasses
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUDGETS = ROOT / "services/worker/kernels/cuda/budgets.tsv"

ARCHITECTURE = re.compile(r"arch = (sm_\w+)")
FUNCTION = re.compile(r"Function\s*:?\s*(\S+?):?$")
RESOURCES = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_.]*)")
KERNEL = re.compile(r"(\w+Kernel)\b")
# Loads without a width move 32 bits. LDGSTS copies to shared memory.
WIDTHS = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128}
TENSOR_CORES = ("HMMA", "HGMMA", "UTCHMMA")


@dataclasses.dataclass
class Kernel:
    """What a kernel takes, by architecture."""

    registers: int = 0
    stack_bytes: int = 0
    shared_bytes: int = 0
    load_bits: dict = dataclasses.field(default_factory=dict)
    with_tensor_cores: set = dataclasses.field(default_factory=set)

    def row(self):
        return {"registers": self.registers, "stack_bytes": self.stack_bytes,
                "shared_bytes": self.shared_bytes,
                "load_bits": min(self.load_bits.values(), default=0),
                "tensor_cores": ("yes" if self.with_tensor_cores >= set(self.load_bits) else "no")}


def functions(text):
    """Yields (architecture, mangled name, line) for each line below a function."""
    architecture = name = None
    for line in text.splitlines():
        if match := ARCHITECTURE.search(line):
            architecture, name = match[1], None
        elif match := FUNCTION.search(line):
            name = match[1]
        elif name:
            yield architecture, name, line


def load_width(opcode):
    """Bits that an instruction loads from global memory, or 0."""
    first, *modifiers = opcode.split(".")
    if first not in ("LDG", "LDGSTS"):
        return 0
    return max((WIDTHS[one] for one in modifiers if one in WIDTHS), default=32)


def read_resources(text, kernels, name_of):
    for architecture, name, line in functions(text):
        if match := RESOURCES.search(line):
            kernel = kernels.setdefault(name_of(name), Kernel())
            kernel.load_bits.setdefault(architecture, 0)
            registers, stack, shared = map(int, match.groups())
            kernel.registers = max(kernel.registers, registers)
            kernel.stack_bytes = max(kernel.stack_bytes, stack)
            kernel.shared_bytes = max(kernel.shared_bytes, shared)


def read_code(text, kernels, name_of):
    for architecture, name, line in functions(text):
        if not (match := INSTRUCTION.search(line)):
            continue
        kernel = kernels.setdefault(name_of(name), Kernel())
        kernel.load_bits[architecture] = max(kernel.load_bits.get(architecture, 0),
                                             load_width(match[1]))
        if match[1].startswith(TENSOR_CORES):
            kernel.with_tensor_cores.add(architecture)


def short_names():
    """A function from mangled names to the names of kernels."""
    known = {}

    def name_of(mangled):
        if mangled not in known:
            plain = subprocess.run(["c++filt", mangled], check=True, capture_output=True,
                                   text=True).stdout
            match = KERNEL.search(plain)
            known[mangled] = match[1] if match else plain.strip()
        return known[mangled]
    return name_of


def measure(objects):
    kernels, name_of = {}, short_names()
    for file in objects:
        for option, read in (("-res-usage", read_resources), ("-sass", read_code)):
            printed = subprocess.run(["cuobjdump", option, str(file)], check=True,
                                     capture_output=True, text=True)
            # It prints the resources to stderr.
            read(printed.stdout + printed.stderr, kernels, name_of)
    return {name: kernel.row() for name, kernel in sorted(kernels.items())}


def compare(measured, budgets):
    """Yields what is over its budget, in words."""
    for name in sorted(measured.keys() | budgets.keys()):
        if name not in budgets:
            yield f"{name}: has no row"
        elif name not in measured:
            yield f"{name}: there is no such kernel"
        else:
            yield from compare_kernel(name, measured[name], budgets[name])


def compare_kernel(name, row, budget):
    for column in ("registers", "stack_bytes", "shared_bytes"):
        if row[column] > int(budget[column]):
            yield f"{name}: {column} {row[column]}, at most {budget[column]}"
    if row["load_bits"] < int(budget["load_bits"]):
        yield f"{name}: load_bits {row['load_bits']}, at least {budget['load_bits']}"
    if budget["tensor_cores"] == "yes" and row["tensor_cores"] == "no":
        yield f"{name}: does not use tensor cores"


def read_budgets(path):
    with open(path, encoding="utf-8") as file:
        return {row.pop("kernel"): row for row in csv.DictReader(file, delimiter="\t")}


def write_budgets(path, measured):
    with open(path, "w", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["kernel", "registers", "stack_bytes", "shared_bytes",
                                       "load_bits", "tensor_cores"],
                                delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows({"kernel": name, **row} for name, row in measured.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("objects", nargs="+", type=pathlib.Path)
    parser.add_argument("--budgets", type=pathlib.Path, default=BUDGETS)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    measured = measure(args.objects)
    if args.write:
        write_budgets(args.budgets, measured)
        return 0
    findings = list(compare(measured, read_budgets(args.budgets)))
    for finding in findings:
        print(f"kernel_budgets: {finding}")
    print(f"kernel_budgets: {len(measured)} kernels, {len(findings)} findings")
    return 1 if findings or not measured else 0


if __name__ == "__main__":
    sys.exit(main())
