"""Images of Lathe for tests, made from the programs of build/release in an engine of the test's own."""

import json
import os
import pathlib
import subprocess

from support.base_image import base_tar
from support.lathe_server import BIN, ROOT

# tools/check deploy sets it: all images and packages, instead of those that users need first.
FULL = os.environ.get("LATHE_DEPLOY_FULL") == "1"
# Podman takes a name without a registry only so.
BASE = "localhost/lathe-base:bookworm"
POSTGRES = "lathe-test-postgres:15"
DOCKERFILE = ROOT / "deploy/images/Dockerfile"
TREE = ROOT / "build/packages/tree"


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
