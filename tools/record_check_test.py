"""The page of the slow checks keeps the last run of each."""

import pathlib
import subprocess
import sys

PROGRAM = pathlib.Path(__file__).with_name("record_check.py")


def rows(page, *runs):
    for run in runs:
        subprocess.run([sys.executable, str(PROGRAM), "--page", str(page), *run], check=True)
    return [[cell.strip() for cell in line.split("|")[1:4]]
            for line in page.read_text().splitlines() if line.startswith("|")][2:]


def test_the_last_run_of_each_check_is_kept_by_name(tmp_path):
    page = tmp_path / "deep" / "checks.md"
    assert rows(page, ["tsan", "passed", "90"], ["asan", "failed", "7"]) == [
        ["asan", "failed", "7"], ["tsan", "passed", "90"]]
    assert rows(page, ["asan", "passed", "80"]) == [
        ["asan", "passed", "80"], ["tsan", "passed", "90"]]
