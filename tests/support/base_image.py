"""The base image of Lathe's images, as a tar file that this machine keeps for a month.

    python3 tests/support/base_image.py    # makes it, if there is none, and prints its path
"""

import fcntl
import hashlib
import os
import pathlib
import subprocess
import time

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "deploy/images/base.sh"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "lathe"


def base_tar():
    """Path of the tar file. Making it takes a minute; a second caller waits for the first."""
    key = hashlib.sha256(SCRIPT.read_bytes()).hexdigest()[:12]
    tar = CACHE / f"base-{time.strftime('%Y-%m')}-{key}.tar"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "base.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tar.exists():
            made = tar.with_name(f"new-{tar.name}")  # mmdebstrap goes by the suffix
            subprocess.run([SCRIPT, made], check=True)
            for older in CACHE.glob("base-*.tar"):
                older.unlink()
            made.rename(tar)
    return tar


if __name__ == "__main__":
    print(base_tar())
