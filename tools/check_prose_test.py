"""Plants comments with and without a subject in a small tree and expects check_prose to tell them apart."""

import pathlib
import subprocess
import sys

CHECK = pathlib.Path(__file__).with_name("check_prose.py")


def check(root, text):
    file = root / "services" / "a.h"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return subprocess.run([sys.executable, str(CHECK), str(root)], capture_output=True, text=True)


def test_a_comment_without_a_subject_is_found(tmp_path):
    result = check(tmp_path, "#pragma once\n  // Until when it waits.\nint a;\n")
    assert result.returncode == 1
    assert "services/a.h:2: Until when it waits." in result.stdout


def test_a_line_within_a_comment_may_begin_with_any_word(tmp_path):
    result = check(tmp_path, "// The name\n// Of the rose.\nint a;  // of this line\n")
    assert result.returncode == 0
    assert "1 comments, 0 begin" in result.stdout


def test_one_in_a_hundred_is_too_many_only_above(tmp_path):
    plain = "// The name.\nint a;\n" * 99
    assert check(tmp_path, plain + "// Whose name.\nint b;\n").returncode == 0
    assert check(tmp_path, plain + "// Whose name.\nint b;\n// Of it.\nint c;\n").returncode == 1
