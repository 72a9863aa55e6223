"""Every fail point that the code names is listed, and every listed one is in the code, once."""

import collections
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.fail_points import ROOT, listed  # noqa: E402

NAME = re.compile(r'"((?:engine|worker|gateway)(?:\.[a-z_]+)+)"')
USE = re.compile(r"\b(?:FailPoint|FailPointErrno|Passed)\(([^;]*?)\)", re.DOTALL)


def used():
    """{name: number of places}"""
    places = collections.Counter()
    for folder in ("services", "libs"):
        for file in (ROOT / folder).rglob("*.cc"):
            if file.name.endswith("_test.cc") or "fail_point" in file.parent.name:
                continue
            for arguments in USE.findall(file.read_text()):
                places.update(NAME.findall(arguments))
    return places


def test_the_list_and_the_code_agree():
    assert sorted(used()) == sorted(listed())


def test_a_name_is_given_once():
    assert [name for name, count in collections.Counter(listed()).items() if count > 1] == []
