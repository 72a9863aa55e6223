"""The folders that images copy to their root.

    control/   usr/bin/{lathe,lathe-engine,lathe-gateway,lathe-entry}
    worker/    usr/bin/{lathe,lathe-worker,lathe-export,lathe-entry}
    torch/     usr/lib/lathe/: libtorch, a layer of its own since it is large and changes rarely

A preset without an engine, such as `cuda`, has no control/. Each has usr/share/doc/lathe/components/NAME.json for deploy/images/sbom.py: where files come from
that no package of Debian brings.
"""

import json
import pathlib
import re
import shutil
import subprocess

from . import project

_DOC = "usr/share/doc/lathe"
# Packages of Debian whose code is compiled into the programs. Shared libraries are packages of
# the image and not listed here.
_COMPILED_IN = ("libsqlitecpp-dev", "libboost1.81-dev", "nlohmann-json3-dev", "libcli11-dev",
                "libabsl-dev", "libgloo-dev")


def make(build, out):
    trees = out / "tree"
    shutil.rmtree(trees, ignore_errors=True)
    if (build / "bin/lathe-engine").exists():
        _make_programs(build, trees / "control", ("cli", "control"))
    _make_programs(build, trees / "worker", ("cli", "worker"))
    make_torch(build, trees / "torch")
    for tree in trees.iterdir():
        project.set_times(tree)
    return [trees]


def _make_programs(build, root, components):
    project.install(build, components, root / "usr")
    entry = root / "usr/bin/lathe-entry"
    shutil.copyfile(project.ROOT / "deploy/images/entry", entry)
    entry.chmod(0o755)
    copy_license(root)
    _write(root / _DOC / f"components/{components[-1]}.json", {
        "name": f"lathe-{components[-1]}", "version": project.version(),
        "license": project.LICENSE, "files": _files(root / "usr/bin", root),
        "contains": [_debian_package(name) for name in _COMPILED_IN]})


def make_torch(build, root):
    """libtorch below `root`, with one component for each wheel that its files come from."""
    project.install(build, ["torch"], root / "usr")
    for info in sorted(_packages_of_torch(build).glob("*.dist-info")):
        fields = _metadata(info)
        name = fields["Name"]
        files = _installed_files(info, root)
        if not files or not re.match("torch$|nvidia-", name):
            continue
        _write(root / _DOC / f"components/{name}.json", {
            "name": name, "version": fields["Version"],
            "license": fields.get("License-Expression") or fields.get("License", "NOASSERTION"),
            "purl": f"pkg:pypi/{name}@{fields['Version']}", "files": files})
        _copy_licenses(info, root / _DOC / "licenses" / name)


def _copy_licenses(info, folder):
    """The texts of a wheel and of what is compiled into it, in their folders."""
    for text in info.rglob("*"):
        if text.is_file() and re.match("LICEN[CS]E|NOTICE|COPYING", text.name):
            place = folder / text.relative_to(info)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(text, place)


def copy_license(root):
    doc = root / _DOC
    doc.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(project.ROOT / "LICENSE", doc / "copyright")


def _files(folder, root):
    return sorted("/" + str(path.relative_to(root)) for path in folder.rglob("*") if path.is_file())


def _packages_of_torch(build):
    """The folder site-packages whose torch the preset was built with."""
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    torch = next((line.partition("=")[2] for line in cache.splitlines()
                  if line.startswith("LATHE_TORCH_DIR:")), "")
    if torch:
        return pathlib.Path(torch).parent
    return next(project.ROOT.glob(".venv/lib/python3*/site-packages"))


def _metadata(info):
    lines = (info / "METADATA").read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines[:lines.index("")] if ": " in line)


def _installed_files(info, root):
    """Where the files of a wheel lie below `root`: with their folders, or beside each other."""
    library = root / "usr/lib/lathe"
    record = (info / "RECORD").read_text(encoding="utf-8").splitlines()
    names = [pathlib.Path(line.rsplit(",", 2)[0]) for line in record]
    places = {place for name in names for place in (library / name, library / name.name)}
    return sorted("/" + str(place.relative_to(root)) for place in places if place.is_file())


def _debian_package(name):
    version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", name], check=True,
                             capture_output=True, text=True).stdout
    return {"name": name, "version": version, "purl": f"pkg:deb/debian/{name}@{version}"}


def _write(path, fields):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")
