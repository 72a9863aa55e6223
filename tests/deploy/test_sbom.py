"""The list of an image's contents fails where it would not be complete."""

import json
import subprocess
import sys

import pytest
from support.lathe_server import ROOT


@pytest.fixture
def root(tmp_path):
    """A small image: one package of Debian and one component."""
    database = tmp_path / "image/var/lib/dpkg"
    (database / "info").mkdir(parents=True)
    (database / "status").write_text(
        "Package: libexample1\nStatus: install ok installed\nMaintainer: x <x@x>\nArchitecture: amd64\n"
        "Source: example (1.0-2)\nVersion: 1.0-2+b1\nDescription: example\n\n")
    (database / "info/libexample1.list").write_text("/.\n/lib\n/lib/libexample.so.1\n")
    image = tmp_path / "image"
    for path in ("usr/lib/libexample.so.1", "usr/lib/lathe/libtorch_cpu.so"):
        (image / path).parent.mkdir(parents=True, exist_ok=True)
        (image / path).write_bytes(b"")
    components = image / "usr/share/doc/lathe/components"
    components.mkdir(parents=True)
    (components / "torch.json").write_text(json.dumps(
        {"name": "torch", "version": "2.13.0", "license": "BSD-3-Clause",
         "files": ["/usr/lib/lathe/libtorch_cpu.so"],
         "contains": [{"name": "inner", "version": "1", "purl": "pkg:generic/inner@1"}]}))
    return image


def make(root):
    out = root.parent / "sbom.spdx.json"
    done = subprocess.run([sys.executable, ROOT / "deploy/images/sbom.py", "--name", "small", "--root",
                           root, "--created", "1700000000", "--out", out], check=False,
                          capture_output=True, text=True)
    return done, out


def test_every_package_and_component_is_listed(root):
    done, out = make(root)
    assert done.returncode == 0, done.stderr
    document = json.loads(out.read_text())
    assert {package["name"]: package["versionInfo"] for package in document["packages"]} == {
        "libexample1": "1.0-2+b1", "torch": "2.13.0", "inner": "1"}
    assert document["creationInfo"]["created"] == "2023-11-14T22:13:20Z"
    assert {"spdxElementId": "SPDXRef-torch-2.13.0", "relationshipType": "STATIC_LINK",
            "relatedSpdxElement": "SPDXRef-inner-1"} in document["relationships"]


@pytest.mark.parametrize("stray", ["usr/lib/libstray.so", "usr/lib/lathe/libc10.so"])
def test_a_library_of_nobody_fails_the_list(root, stray):
    (root / stray).write_bytes(b"")
    done, out = make(root)
    assert done.returncode != 0 and f"/{stray}" in done.stderr
    assert not out.exists()


def test_a_link_of_nobody_fails_the_list(root):
    (root / "usr/lib/libstray.so").symlink_to("libexample.so.1")
    done, _ = make(root)
    assert done.returncode != 0 and "/usr/lib/libstray.so" in done.stderr
