"""Plants small files and long functions in a tree and expects check_files to count them."""

import pathlib

import pytest
from planted_tree import run_check

CHECK = pathlib.Path(__file__).with_name("check_files.py")
BODY = "  Work();\n"


def check(root, files):
    return run_check(CHECK, root, files)


def large(text="int x;\n"):
    return text + "\n" * 40


def test_small_files_are_counted(tmp_path):
    small = {f"libs/b{i}.cc": "int y;\n" for i in range(2)}
    result = check(tmp_path, small | {f"services/a{i}.h": large() for i in range(18)})
    assert result.returncode == 1
    assert "2 of 20 files have under 30 lines (10.0%" in result.stdout
    result = check(tmp_path, {"services/c.h": large()})
    assert result.returncode == 0
    assert "2 of 21 files" in result.stdout


HEADS = {
    "a function": ("", "int F(int a) {\n", "}\n"),
    "a long signature": ("", "int F(int a,\n      int b) {\n", "}\n"),
    "a member": ("class C {\n public:\n", "  C()\n      : a_(1),\n        b_(2) {\n", "  }\n};\n"),
    "a function with lambdas": ("", "int F() {\n  const auto f = [&](int x) {\n", "  };\n}\n"),
}


@pytest.mark.parametrize("before,head,end", HEADS.values(), ids=HEADS)
def test_a_function_may_have_70_lines(tmp_path, before, head, end):
    num_ends = len(end.splitlines()) - (1 if before else 0)
    room = 70 - len(head.splitlines()) - num_ends
    assert check(tmp_path, {"services/a.cc": before + head + BODY * room + end}).returncode == 0
    result = check(tmp_path, {"services/a.cc": before + head + BODY * (room + 1) + end})
    assert result.returncode == 1
    line = len(before.splitlines()) + 1
    assert f"services/a.cc:{line}: a function of 71 lines, the bound is 70" in result.stdout


@pytest.mark.parametrize("head,end", [
    ("namespace lathe {\n", "}  // namespace lathe\n"), ("class C {\n", "};\n"),
    ("constexpr int kTable[] = {\n", "};\n"), ("const std::map<int, int> table = Make({\n", "});\n"),
    ("enum class Kind {\n", "};\n")])
def test_other_braces_may_be_longer(tmp_path, head, end):
    result = check(tmp_path, {"services/a.cc": head + "  1,\n" * 100 + end})
    assert result.returncode == 0, result.stdout


def test_tests_may_have_longer_functions(tmp_path):
    text = "int F(int a) {\n" + BODY * 100 + "}\n"
    assert check(tmp_path, {"services/a_test.cc": text, "services/testing/b.cc": text}).returncode == 0
