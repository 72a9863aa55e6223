"""The compatibility table: what a cell says, and that --check notices a difference."""

import json
import pathlib
import subprocess
import sys

import pytest

TOOLS = pathlib.Path(__file__).parent
sys.path.insert(0, str(TOOLS))
import compatibility_table  # noqa: E402


def run(sdk, methods, cells):
    return {"sdk": sdk, "methods": methods, "cells": cells, "notes": {"RestClient.get": "a thing"}}


@pytest.mark.parametrize("cells, expected", [
    ({"RestClient.get": "yes", "RestClient.get_async": "yes"}, "yes"),
    ({"RestClient.get": "yes"}, "yes, but for `get_async`"),
    ({"RestClient.get": "refused", "RestClient.get_async": "refused"}, "refused"),
    ({}, "no"),
])
def test_a_cell_counts_the_method_and_its_async_variant(cells, expected):
    both = ["RestClient.get", "RestClient.get_async"]
    assert compatibility_table.cell(run("0.38.0", both, cells), "RestClient.get") == expected


def test_a_method_the_sdk_lacks_and_one_that_asks_no_server():
    one = run("0.25.0", ["RestClient.get_telemetry"], {})
    assert compatibility_table.cell(one, "RestClient.get") == "–"
    assert compatibility_table.cell(one, "RestClient.get_telemetry") == "local"


def test_versions_are_columns_in_order_and_unserved_methods_say_so():
    text = compatibility_table.table([
        run("0.38.0", ["RestClient.get", "RestClient.put"], {"RestClient.get": "yes"}),
        run("0.4.0", ["RestClient.get"], {})])
    assert "| Method | 0.4.0 | 0.38.0 | What Lathe does |" in text
    assert "| `get` | no | yes | a thing |" in text
    assert "| `put` | – | no | no test calls it yet |" in text


def test_check_fails_on_a_table_the_runs_do_not_give(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run("0.38.0", ["RestClient.get"], {})))
    done = subprocess.run([sys.executable, str(TOOLS / "compatibility_table.py"), "--check", path],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "| `get` | no | a thing |" not in done.stdout
    assert "+| `get` | no | no test calls it yet |" in done.stdout
