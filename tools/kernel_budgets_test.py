"""Plants kernels that take too much in what cuobjdump prints, and expects their names."""

import os
import pathlib
import subprocess
import sys

import pytest

CHECK = pathlib.Path(__file__).with_name("kernel_budgets.py")
RESOURCES = """
Fatbin elf code:
================
arch = sm_80

Resource usage:
 Common:
  GLOBAL:0
 Function _ZN5lathe6worker9RowKernelIfEEvi:
  REG:30 STACK:0 SHARED:1056 LOCAL:0 CONSTANT[0]:464 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function _ZN5lathe6worker9RowKernelIdEEvi:
  REG:{registers} STACK:{stack} SHARED:{shared} LOCAL:0 CONSTANT[0]:464 TEXTURE:0 SURFACE:0 SAMPLER:0

Fatbin elf code:
================
arch = sm_90

Resource usage:
 Function _ZN5lathe6worker9RowKernelIfEEvi:
  REG:31 STACK:0 SHARED:1056 LOCAL:0 CONSTANT[0]:464 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
CODE = """
\tcode for {architecture}
\t\tFunction : _ZN5lathe6worker9RowKernelIfEEvi
        /*0000*/                   MOV R1, c[0x0][0x28] ;               /* 0x00000a0000017a02 */
                                                                        /* 0x000fe40000000f00 */
        /*0050*/              @!P0 {load} R4, [R2.64] ;                 /* 0x0000000402047981 */
        /*0060*/                   {product} R8, R4, R6, R8 ;           /* 0x000000060408723c */
"""
ELF = "\nFatbin elf code:\n================\narch = {architecture}\n"
BUDGETS = """kernel\tregisters\tstack_bytes\tshared_bytes\tload_bits\ttensor_cores
RowKernel\t32\t0\t1056\t128\tyes
"""
WIDE, PRODUCT = "LDG.E.128.CONSTANT", "HMMA.16816.F32.BF16"


def run(folder, *options, budgets=BUDGETS, registers=32, stack=0, shared=1056,
        loads=(WIDE, WIDE), products=(PRODUCT, PRODUCT)):
    """The check beside a cuobjdump that prints the texts above."""
    (folder / "usage").write_text(RESOURCES.format(registers=registers, stack=stack, shared=shared))
    (folder / "code").write_text("".join(
        ELF.format(architecture=one) + CODE.format(architecture=one, load=load, product=product)
        for one, load, product in zip(("sm_80", "sm_90"), loads, products)))
    dump = folder / "cuobjdump"
    dump.write_text(f'#!/bin/sh\n[ "$1" = -sass ] && exec cat {folder}/code\n'
                    f"exec cat {folder}/usage >&2\n")
    dump.chmod(0o755)
    (folder / "budgets.tsv").write_text(budgets)
    return subprocess.run(
        [sys.executable, str(CHECK), *options, "--budgets", str(folder / "budgets.tsv"), "a.o"],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}, capture_output=True,
        text=True, check=False)


def test_kernels_within_their_budgets_pass(tmp_path):
    ended = run(tmp_path)
    assert ended.stdout == "kernel_budgets: 1 kernels, 0 findings\n"
    assert ended.returncode == 0


@pytest.mark.parametrize("planted,finding", [
    ({"registers": 40}, "RowKernel: registers 40, at most 32"),
    ({"stack": 8}, "RowKernel: stack_bytes 8, at most 0"),
    ({"shared": 2048}, "RowKernel: shared_bytes 2048, at most 1056"),
    ({"loads": ("LDG.E", WIDE)}, "RowKernel: load_bits 32, at least 128"),
    ({"loads": (WIDE, "LDG.E.U16")}, "RowKernel: load_bits 16, at least 128"),
    ({"products": ("FFMA", PRODUCT)}, "RowKernel: does not use tensor cores"),
    ({"budgets": BUDGETS.replace("Row", "Other")}, "RowKernel: has no row"),
    ({"budgets": BUDGETS + "GoneKernel\t1\t0\t0\t0\tno\n"}, "GoneKernel: there is no such kernel"),
])
def test_each_kernel_over_its_budget_is_named(tmp_path, planted, finding):
    ended = run(tmp_path, **planted)
    assert f"kernel_budgets: {finding}\n" in ended.stdout
    assert ended.returncode == 1


def test_what_is_measured_becomes_the_budget(tmp_path):
    assert run(tmp_path, "--write", registers=64).returncode == 0
    assert (tmp_path / "budgets.tsv").read_text() == BUDGETS.replace("\t32\t", "\t64\t")
