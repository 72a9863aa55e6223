#!/usr/bin/env python3
"""Checks that the pages name what exists.

  * A link to a file, or to a heading of a page, leads there.
  * A path in backticks that begins with a folder of the code exists: `services/engine/core/`,
    `core_harness.{h,cc}` with its folders, `docs/adding_*.md`. NAME and {name} stand for any name.

Prints each that does not as file:line, and ends with 1 if there are some.
"""

import argparse
import itertools
import pathlib
import re
import sys

PAGES = ("*.md", "docs/**/*.md", "services/*.md")
FOLDERS = ("cmake", "deploy", "docs", "examples", "libs", "protos", "services", "tests", "tools")

LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[^`\s]*)`")
HEADING = re.compile(r"#+ +(.*)")
CHOICE = re.compile(r"\{([^}]*)\}")


def anchor(heading):
    """GitHub's name of a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def anchors(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    return {anchor(found[1]) for line in lines if (found := HEADING.match(line))}


def patterns(path):
    """The paths that a written path stands for, with * for what is any name."""
    parts = CHOICE.split(path.rstrip("/").replace("NAME", "*"))
    choices = [part.split(",") if i % 2 and "," in part else ["*" if i % 2 else part]
               for i, part in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def is_broken(page, target):
    file, _, heading = target.partition("#")
    to = page.parent / file if file else page
    if not to.exists():
        return True
    return bool(heading) and to.suffix == ".md" and heading not in anchors(to)


def complaints(root, page):
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        where = f"{page.relative_to(root).as_posix()}:{number}"
        for target in LINK.findall(line):
            if "://" not in target and is_broken(page, target):
                yield f"{where}: the link {target} leads nowhere"
        for path in PATH.findall(line):
            for pattern in patterns(path):
                if not any(root.glob(pattern)):
                    yield f"{where}: {pattern} does not exist"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default_root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=pathlib.Path, default=default_root, help="tree to check")
    root = parser.parse_args().root
    pages = sorted({page for pattern in PAGES for page in root.glob(pattern)})
    found = [complaint for page in pages for complaint in complaints(root, page)]
    print(*found, sep="\n", end="\n" if found else "")
    print(f"check_pages: {len(pages)} pages, {len(found)} names of what does not exist")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
