"""Plants pages in a tree and expects check_pages to find what they name wrongly."""

import pathlib

import pytest
from planted_tree import run_check

CHECK = pathlib.Path(__file__).with_name("check_pages.py")
TREE = {
    "services/engine/core/core.h": "",
    "services/engine/core/core.cc": "",
    "tools/lathe/commands/up_command.h": "",
    "docs/other.md": "# Other\n\n## How it's done: `twice`\n",
}


def check(root, text):
    return run_check(CHECK, root, TREE | {"docs/page.md": text})


@pytest.mark.parametrize("text", [
    "`services/engine/core/core.{h,cc}` and `services/engine/core/`",
    "`tools/lathe/commands/NAME_command.h`",
    "`services/{service}/core/core.h`",
    "`core/nothing.h`, `tools/test e2e`",
    "[other](other.md), [part](other.md#how-its-done-twice), [far](https://a.org)",
    "[here](#page)\n# Page",
])
def test_what_exists_passes(tmp_path, text):
    result = check(tmp_path, text)
    assert result.returncode == 0, result.stdout
    assert "check_pages: 2 pages, 0 names" in result.stdout


@pytest.mark.parametrize("text,complaint", [
    ("`services/engine/core/core.{h,py}`", "services/engine/core/core.py does not exist"),
    ("`tools/lathe/NAME_command.h`", "tools/lathe/*_command.h does not exist"),
    ("`docs/gone.md`", "docs/gone.md does not exist"),
    ("[gone](gone.md)", "the link gone.md leads nowhere"),
    ("[part](other.md#never)", "the link other.md#never leads nowhere"),
    ("[part](#never)", "the link #never leads nowhere"),
])
def test_what_does_not_exist_is_found(tmp_path, text, complaint):
    result = check(tmp_path, "A page.\n" + text + "\n")
    assert result.returncode == 1
    assert f"docs/page.md:2: {complaint}\n" in result.stdout
