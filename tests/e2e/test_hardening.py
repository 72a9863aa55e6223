"""The programs are built as release programs should be."""

import subprocess

import pytest
from support.lathe_server import BIN


def readelf(option, program):
    return subprocess.run(["readelf", "--wide", option, str(BIN / program)], check=True,
                          capture_output=True, text=True).stdout


@pytest.mark.parametrize("program", ["lathe", "lathe-engine", "lathe-gateway", "lathe-worker"])
def test_programs_are_hardened(program):
    assert "DYN (Position-Independent Executable file)" in readelf("--file-header", program)
    segments = readelf("--program-headers", program)
    assert "GNU_RELRO" in segments
    (stack,) = [line for line in segments.splitlines() if "GNU_STACK" in line]
    assert " RW " in stack
    assert "NOW" in readelf("--dynamic", program)
    assert "__stack_chk_fail" in readelf("--dyn-syms", program)
