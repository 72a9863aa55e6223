"""A file system of few MiB, to be filled."""

import contextlib
import os
import pathlib
import subprocess

import pytest


class SmallDisk:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self._filler = self.folder / "filler"

    def free_bytes(self):
        space = os.statvfs(self.folder)
        return space.f_bavail * space.f_frsize

    def fill(self, keep_bytes=0):
        """Leaves `keep_bytes`, to a page."""
        # Other processes write at the same time, so the disk may be full at any time.
        with (contextlib.suppress(OSError),
              open(self._filler, "ab", buffering=0) as file):
            while (left := self.free_bytes() - keep_bytes) > 0:
                file.write(b"\0" * min(1 << 16, left))

    def free(self):
        self._filler.unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(folder, mebibytes):
    """Mounts a tmpfs over `folder`, which is made. Needs root, as CI has."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    os.makedirs(folder, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=0700", "tmpfs",
                    str(folder)], check=True)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
