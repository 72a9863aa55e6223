"""Images of Lathe for tests, made from the programs of build/release in an engine of the test's own."""

import fcntl
import hashlib
import json
import os
import pathlib
import subprocess
import time

from support.lathe_server import BIN, ROOT

# tools/check deploy sets it: all images and packages, instead of those that users need first.
FULL = os.environ.get("LATHE_DEPLOY_FULL") == "1"
# Podman takes a name without a registry only so.
BASE = "localhost/lathe-base:bookworm"
POSTGRES = "lathe-test-postgres:15"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "lathe"
DOCKERFILE = ROOT / "deploy/images/Dockerfile"
TREE = ROOT / "build/packages/tree"


def base_tar():
    """Tar file of the base image. Making it takes a minute, so a machine keeps it for a month."""
    script = ROOT / "deploy/images/base.sh"
    key = hashlib.sha256(script.read_bytes()).hexdigest()[:12]
    tar = CACHE / f"base-{time.strftime('%Y-%m')}-{key}.tar"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "base.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tar.exists():
            made = tar.with_name(f"new-{tar.name}")  # mmdebstrap goes by the suffix
            subprocess.run([script, made], check=True)
            for older in CACHE.glob("base-*.tar"):
                older.unlink()
            made.rename(tar)
    return tar


def make_tree():
    subprocess.run([ROOT / "tools/package", "tree", "--build", BIN.parent], check=True,
                   stdout=subprocess.DEVNULL)
    return TREE


def version():
    told = subprocess.run([BIN / "lathe", "version"], check=True, capture_output=True, text=True)
    return told.stdout.split()[1]


def import_base(engine):
    if not engine.ids("images", "-q", BASE):
        engine.docker("import", base_tar(), BASE)


def build(engine, target, tag=None, labels=()):
    """Image `target` of the Dockerfile, from the tree; returns its tag."""
    tag = tag or f"lathe-{target}:test"
    arguments = {"BASE": BASE, "PROGRAMS": "prebuilt", "VERSION": version(), "REVISION": "test"}
    engine.docker("build", "--network", "host", "--file", DOCKERFILE, "--target", target,
                  "--tag", tag,
                  *(word for item in arguments.items() for word in ("--build-arg", "=".join(item))),
                  *(word for label in labels for word in ("--label", label)), ROOT)
    return tag


def build_postgres(engine):
    """A stand-in for the image postgres:17 of the registry, which tests cannot reach."""
    folder = pathlib.Path(__file__).parent / "postgres_image"
    engine.docker("build", "--network", "host", "--build-arg", f"BASE={BASE}", "--tag", POSTGRES,
                  folder)
    return POSTGRES


def inspect(engine, image):
    return json.loads(engine.docker("image", "inspect", image).stdout)[0]
