"""What packages say about Lathe, each read from its one place."""

import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
DESCRIPTION = "Self-hosted post-training service that speaks the Tinker API"
LICENSE = "Apache-2.0"


def _only_match(pattern, file):
    found = re.findall(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    if len(found) != 1:
        raise RuntimeError(f"{file} has {len(found)} lines like {pattern}")
    return found[0]


def version():
    return _only_match(r'kVersion = "(\d+\.\d+\.\d+)";', "libs/common/version.h")


def torch_version():
    return _only_match(r"^TORCH_VERSION=(\S+)$", "tools/setup")


def source_date_epoch():
    """Time stamp of every packed file, so that equal files make equal packages."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    told = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], check=False,
                          capture_output=True, text=True)
    return int(told.stdout) if told.returncode == 0 and told.stdout.strip() else 1_700_000_000


def install(build, components, prefix):
    """`cmake --install` of these components (cmake/LatheInstall.cmake) to `prefix`."""
    for component in components:
        subprocess.run(["cmake", "--install", str(build), "--strip", "--component", component,
                        "--prefix", str(prefix)], check=True, stdout=subprocess.DEVNULL)


def set_times(folder):
    """Gives all files of `folder` the time of the sources."""
    epoch = source_date_epoch()
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (epoch, epoch), follow_symlinks=False)
