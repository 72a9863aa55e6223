"""The programs are built as release programs should be."""

import json
import re
import subprocess

import pytest
from support.lathe_server import BIN

PROGRAMS = ["lathe", "lathe-engine", "lathe-gateway", "lathe-worker"]


def readelf(option, program):
    return subprocess.run(["readelf", "--wide", option, str(BIN / program)], check=True,
                          capture_output=True, text=True).stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_are_hardened(program):
    assert "DYN (Position-Independent Executable file)" in readelf("--file-header", program)
    segments = readelf("--program-headers", program)
    assert "GNU_RELRO" in segments
    (stack,) = [line for line in segments.splitlines() if "GNU_STACK" in line]
    assert " RW " in stack
    assert "NOW" in readelf("--dynamic", program)
    symbols = readelf("--dyn-syms", program)
    assert "__stack_chk_fail" in symbols
    # Calls of the C library that check the size of what they write to.
    assert re.search(r"__\w+_chk\b", symbols.replace("__stack_chk_fail", ""))
    # Abort of an assertion of the standard library, such as an index behind a vector's end.
    assert "__glibcxx_assert_fail" in symbols


@pytest.mark.parametrize("program", PROGRAMS)
def test_functions_begin_with_a_landing_pad(program):
    """What an indirect jump may reach, where the processor checks it."""
    code = subprocess.run(["objdump", "--disassemble=main", "--no-show-raw-insn", str(BIN / program)],
                          check=True, capture_output=True, text=True).stdout
    first = re.search(r"<main>:\n(.*)", code).group(1)
    assert "endbr64" in first, first


def test_every_file_is_compiled_with_the_flags():
    commands = json.loads((BIN.parent / "compile_commands.json").read_text())
    assert len(commands) > 100
    for flag in ("-fstack-protector-strong", "-fstack-clash-protection", "-fcf-protection",
                 "-D_FORTIFY_SOURCE=3", "-D_GLIBCXX_ASSERTIONS", "-O2"):
        without = [entry["file"] for entry in commands if f" {flag} " not in entry["command"]]
        assert not without, (flag, without[:5])
