"""An S3 server of this machine for tests (moto), which enforces signatures once it has a user.

moto and boto3 live in .venv-storage (tools/setup), because they pull in much that no other test
needs. The server is a process of its own; its bucket is in memory and ends with it."""

import contextlib
import os
import pathlib
import socket
import subprocess
import time
import urllib.request

from support.lathe_server import BIN

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-storage" / "bin" / "python"
ACCESS_KEY = "testing"
SECRET_KEY = "testing/secret+key"
REGION = "eu-central-1"

# Calls of boto3 in .venv-storage, for suites whose Python lacks it.
_MAKE_BUCKET = """
import boto3, sys
s3 = boto3.client("s3", endpoint_url=sys.argv[1])
s3.create_bucket(Bucket=sys.argv[2], CreateBucketConfiguration={"LocationConstraint": sys.argv[3]})
"""


def keys():
    """The environment of a process that may use the server."""
    return {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true"}


_LIST_NAMES = """
import boto3, sys
s3 = boto3.client("s3", endpoint_url=sys.argv[1])
pages = s3.get_paginator("list_objects_v2").paginate(Bucket=sys.argv[2], Prefix=sys.argv[3],
                                                     Delimiter="/")
for page in pages:
    for folder in page.get("CommonPrefixes", []):
        print(folder["Prefix"].split("/")[-2])
    for object in page.get("Contents", []):
        print(object["Key"].split("/")[-1])
"""


class ObjectStoreServer:
    """`with ObjectStoreServer() as server:` listens on server.port and has the bucket `lathe`.

    The port is free when the server is asked to use it; another process may take it first, so the
    start is tried again."""

    bucket = "lathe"

    def __enter__(self):
        for _ in range(5):
            self.port = self._free_port()
            self.process = subprocess.Popen(
                [str(PYTHON), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                # Small parts, so that tests of many parts need no large files.
                env={**os.environ, **keys(), "S3_UPLOAD_PART_MIN_SIZE": "1024"})
            if self._wait():
                break
        else:
            raise RuntimeError("moto does not start; run tools/setup")
        self.url = f"http://127.0.0.1:{self.port}"
        self._run(_MAKE_BUCKET, REGION)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def _run(self, program, *arguments):
        return subprocess.run([str(PYTHON), "-c", program, self.url, self.bucket, *arguments],
                              check=True, capture_output=True, text=True,
                              env={**os.environ, **keys()}).stdout

    def list_names(self, prefix):
        """Names of the objects and folders in the folder `prefix`, which ends in a slash."""
        return set(self._run(_LIST_NAMES, prefix).split())

    @staticmethod
    def _free_port():
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as probe:
            return probe.getsockname()[1]

    def _wait(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/moto-api/", timeout=5).close()
                return True
            time.sleep(0.05)
        return False

    def options(self, prefix="installation", url=None):
        """The environment of Lathe's processes that keep their files here, below `prefix`."""
        return {**keys(), "LATHE_STORAGE__FILES": f"s3://{self.bucket}/{prefix}",
                "LATHE_STORAGE__ENDPOINT": url or self.url, "LATHE_STORAGE__REGION": REGION}


class Client:
    """Calls tests/storage/object_store_driver.cc."""

    def __init__(self, url, prefix="p", env=None, **options):
        self.options = {"files": f"s3://lathe/{prefix}" if prefix else "s3://lathe",
                        "endpoint": url, "region": REGION, "patience": 20, **options}
        self.env = {**os.environ, **(keys() if env is None else env)}
        self.program = []  # runs the driver: strace with its options

    def call(self, *words, timeout=120):
        """Returns (is_ok, output)."""
        flags = [text for name, value in self.options.items()
                 for text in ("--" + name.replace("_", "-"), str(value))]
        done = subprocess.run([*self.program, str(BIN / "lathe_object_store_driver"), *flags,
                               *map(str, words)],
                              capture_output=True, env=self.env, timeout=timeout)
        assert done.returncode in (0, 1), done.stderr
        return done.returncode == 0, done.stdout.decode("utf-8", "replace")

    def ok(self, *words):
        is_ok, output = self.call(*words)
        assert is_ok, output
        return output

    def error(self, *words):
        is_ok, output = self.call(*words)
        assert not is_ok, output
        return output
