"""The dashboard's source: its types against the routes of a gateway, its packages, its size."""

import gzip
import json
import re
import shutil
import subprocess
import urllib.request

import pytest
from support.dashboard import SOURCE

pytestmark = pytest.mark.skipif(not (SOURCE / "node_modules/typescript").exists() or shutil.which("node") is None,
                                reason="tools/setup installs node and the packages of the dashboard")

MAX_COMPRESSED_BYTES = 120_000


def test_the_page_fits_the_routes(lathe, tmp_path):
    """The types come from the gateway's own description, so a route that changes fails here."""
    document = tmp_path / "openapi.json"
    document.write_bytes(urllib.request.urlopen(lathe.url + "/docs/openapi.json").read())
    subprocess.run([SOURCE / "node_modules/.bin/openapi-typescript", document,
                    "--properties-required-by-default", "-o", tmp_path / "api.d.ts"], check=True)
    (tmp_path / "tsconfig.json").write_text(json.dumps({
        "extends": str(SOURCE / "tsconfig.json"),
        "compilerOptions": {"paths": {"lathe-api": [str(tmp_path / "api.d.ts")]}},
        "include": [str(SOURCE / "src")]}))
    checked = subprocess.run([SOURCE / "node_modules/.bin/tsc", "-p", tmp_path], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_packages_are_locked_by_their_content():
    lock = json.loads((SOURCE / "package-lock.json").read_text())
    for name, package in lock["packages"].items():
        assert name == "" or package["integrity"].startswith("sha512-"), name


def test_script_and_style_are_small(tmp_path):
    subprocess.run(["node", SOURCE / "build.mjs", tmp_path], check=True)
    files = [file for file in (tmp_path / "assets").iterdir() if file.suffix in (".js", ".css")]
    assert {file.suffix for file in files} == {".js", ".css"}
    size = sum(len(gzip.compress(file.read_bytes(), 9)) for file in files)
    assert size <= MAX_COMPRESSED_BYTES
    page = (tmp_path / "index.html").read_text()
    assert all(f"/ui/assets/{file.name}" in page for file in files)


def test_nothing_makes_markup_of_text():
    forbidden = re.compile(r"dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(")
    for file in (SOURCE / "src").rglob("*.ts*"):
        assert not forbidden.search(file.read_text()), file
