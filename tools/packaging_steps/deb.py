"""The .deb packages: `lathe` (CLI, gateway, engine) and `lathe-worker-cpu` (worker, export, libtorch),
with systemd units and the user `lathe`. Removal and purge leave /var/lib/lathe; a purge takes the
configuration and its secrets."""

import pathlib
import shutil
import subprocess
import tempfile

from . import project, tree

_MAINTAINER = "Lathe developers <lathe@localhost>"
_ARCHITECTURE = "amd64"

_POSTINST = """#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
getent passwd lathe >/dev/null ||
  useradd --system --user-group --home-dir /var/lib/lathe --no-create-home \\
    --shell /usr/sbin/nologin lathe
install -d -o lathe -g lathe -m 0700 /var/lib/lathe
install -d -o root -g lathe -m 0750 /etc/lathe
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  # An upgrade restarts what runs. Nothing starts by itself: it has no configuration yet.
  [ -z "$2" ] || systemctl try-restart UNITS
fi
"""
_PRERM = """#!/bin/sh
set -e
[ "$1" = remove ] && [ -d /run/systemd/system ] || exit 0
systemctl stop UNITS
"""
_POSTRM = """#!/bin/sh
set -e
if [ "$1" = purge ]; then
  # Links of enabled units, which systemctl does not remove without the unit.
  for unit in UNITS; do
    find "$DPKG_ROOT/etc/systemd/system" -mindepth 2 -type l -name "$unit" -delete 2>/dev/null || true
  done
CONFIGURATION
fi
[ ! -d /run/systemd/system ] || systemctl daemon-reload
"""
_PURGE_CONFIGURATION = """\
  # Other files of /etc/lathe, such as certificates, stay. So does the data of /var/lib/lathe: it may
  # be the only copy of trained weights.
  rm -f "$DPKG_ROOT/etc/lathe/lathe.yaml" "$DPKG_ROOT/etc/lathe/environment"
  [ ! -d "$DPKG_ROOT/etc/lathe" ] || rmdir --ignore-fail-on-non-empty "$DPKG_ROOT/etc/lathe"
"""


def make(build, out):
    out.mkdir(parents=True, exist_ok=True)
    version = project.version()
    return [
        _make_package(build, out, "lathe", ("cli", "control", "control_units"),
                      summary=project.DESCRIPTION,
                      text="Gateway, engine and the command lathe. Workers are in lathe-worker-cpu.",
                      depends=["passwd", "ca-certificates"], recommends=["lathe-worker-cpu"],
                      units="lathe.service lathe-engine.service lathe-gateway.service"),
        _make_package(build, out, "lathe-worker-cpu", ("worker", "torch", "worker_units"),
                      summary="Worker of Lathe for CPUs",
                      text="Trains and samples base models for an engine. Contains libtorch.",
                      depends=[f"lathe (= {version})"], recommends=[],
                      units="'lathe-worker@*.service'"),
    ]


def _make_package(build, out, name, components, summary, text, depends, recommends, units):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder, "root")
        project.install(build, components, root / "usr")
        doc = root / "usr/share/doc" / name
        doc.mkdir(parents=True)
        shutil.copyfile(project.ROOT / "LICENSE", doc / "copyright")
        if "torch" in components:
            with tempfile.TemporaryDirectory() as torch:
                tree.make_torch(build, pathlib.Path(torch))
                shutil.copytree(pathlib.Path(torch, "usr/share/doc/lathe/licenses"),
                                doc / "licenses")
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024
        fields = {
            "Package": name, "Version": project.version(), "Architecture": _ARCHITECTURE,
            "Maintainer": _MAINTAINER, "Section": "science", "Priority": "optional",
            "Installed-Size": str(size),
            "Depends": ", ".join([*depends, *_libraries(root, name)]),
            "Recommends": ", ".join(recommends),
            "Description": f"{summary}\n {text}",
        }
        control = root / "DEBIAN"
        control.mkdir()
        _write(control / "control",
               "".join(f"{field}: {value}\n" for field, value in fields.items() if value), 0o644)
        _write(control / "postinst", _POSTINST.replace("UNITS", units), 0o755)
        _write(control / "prerm", _PRERM.replace("UNITS", units), 0o755)
        _write(control / "postrm", postrm(name, units), 0o755)
        project.set_times(root)
        package = out / f"{name}_{project.version()}_{_ARCHITECTURE}.deb"
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Zzstd", "-z6", "--build", root, package],
                       check=True, stdout=subprocess.DEVNULL)
    return package


def postrm(name, units):
    configuration = _PURGE_CONFIGURATION if name == "lathe" else ""
    return _POSTRM.replace("UNITS", units).replace("CONFIGURATION\n", configuration)


def _libraries(root, name):
    """The packages of the shared libraries that the programs need, with their least versions."""
    with tempfile.TemporaryDirectory() as folder:
        debian = pathlib.Path(folder, "debian")
        debian.mkdir()
        (debian / "control").write_text(f"Source: {name}\n\nPackage: {name}\nArchitecture: {_ARCHITECTURE}\n",
                                       encoding="utf-8")
        told = subprocess.run(
            ["dpkg-shlibdeps", "-O", f"-l{root}/usr/lib/lathe", "--ignore-missing-info",
             *(f"-e{path}" for path in sorted(root.glob("usr/bin/lathe*")))],
            cwd=folder, check=True, capture_output=True, text=True).stdout
    return told.partition("shlibs:Depends=")[2].strip().split(", ")


def _write(path, text, mode):
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
