#!/usr/bin/env python3
"""Writes the table of methods by SDK version in docs/tinker_compatibility.md from test runs.

    tools/compatibility_table.py [--check] RUN.json...

A run is the file that tests/e2e/sdk writes to the path in LATHE_SDK_MATRIX, one for each SDK version.
The notes of the table are the docstrings of these tests. With --check the program writes nothing, and
ends with 1 if the committed table differs from the runs.
"""

import argparse
import difflib
import json
import pathlib
import sys

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "tinker_compatibility.md"
BEGIN, END = "<!-- methods: begin -->", "<!-- methods: end -->"

# Methods that the SDK runs without a server. A test run cannot show anything about Lathe for them.
LOCAL = {
    "get_telemetry": "returns the SDK's own queue; Lathe accepts `telemetry` and drops it unread",
    "on_queue_state_change": "only the SDK itself calls it",
    "SamplingClient.create": "only the SDK itself calls it",
    "get_console_url": "returns an address of the hosted service's console",
    "tinker.version": "prints the SDK's version",
}
HEADINGS = {"tinker": "The program `tinker`"}


def base_name(method):
    return method.removesuffix("_async")


def local_note(method):
    return LOCAL.get(method) or LOCAL.get(method.partition(".")[2])


def cell(run, method):
    forms = [name for name in (method, method + "_async") if name in run["methods"]]
    if not forms:
        return "–"
    if local_note(method):
        return "local"
    answers = {run["cells"].get(form, "no") for form in forms}
    if len(answers) == 1:
        return answers.pop()
    return "yes, but for " + ", ".join(
        f"`{form.partition('.')[2]}`" for form in forms if run["cells"].get(form) != "yes")


def table(runs):
    runs = sorted(runs, key=lambda run: [int(part) for part in run["sdk"].split(".")])
    notes = {method: note for run in runs for method, note in run["notes"].items()}
    methods = list(dict.fromkeys(base_name(m) for run in reversed(runs) for m in run["methods"]))
    clients = list(dict.fromkeys(method.partition(".")[0] for method in methods))
    lines = []
    for client in clients:
        lines += [f"### {HEADINGS.get(client, client)}", "",
                  "| Method | " + " | ".join(run["sdk"] for run in runs) + " | What Lathe does |",
                  "|---|" + "---|" * (len(runs) + 1)]
        for method in sorted(m for m in methods if m.startswith(client + ".")):
            cells = [cell(run, method) for run in runs]
            served = set(cells) - {"–", "no"}
            note = local_note(method) or (notes.get(method, "") if served else "no test calls it yet")
            lines.append(f"| `{method.partition('.')[2]}` | {' | '.join(cells)} | {note} |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("runs", nargs="+", type=pathlib.Path, metavar="RUN.json",
                        help="what tests/e2e/sdk recorded with one SDK version")
    args = parser.parse_args()

    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    _, marker, tail = rest.partition(END)
    if not marker:
        raise SystemExit(f"{PAGE} has no lines {BEGIN} and {END}")
    runs = [json.loads(path.read_text()) for path in args.runs]
    wanted = f"{head}{BEGIN}\n\n{table(runs)}\n{END}{tail}"
    if not args.check:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    for line in difflib.unified_diff(page.splitlines(), wanted.splitlines(), "committed",
                                     "as the tests ran", lineterm="", n=0):
        print(line)
    return int(page != wanted)


if __name__ == "__main__":
    sys.exit(main())
