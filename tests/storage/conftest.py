"""One S3 server per module, and a way to call Lathe's client of it."""

import hashlib
import json
import os
import pathlib
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.object_store import REGION, Client, ObjectStoreServer, keys  # noqa: E402

boto3 = pytest.importorskip("boto3", reason="run with .venv-storage/bin/python")


@pytest.fixture(scope="module")
def server():
    with ObjectStoreServer() as running:
        yield running


@pytest.fixture(scope="module")
def s3(server):
    """An independent client of the same server."""
    env = keys()
    return boto3.client("s3", endpoint_url=server.url, region_name=REGION,
                        aws_access_key_id=env["AWS_ACCESS_KEY_ID"],
                        aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"])


@pytest.fixture
def client(server):
    return Client(server.url)


@pytest.fixture
def make_file(tmp_path):
    """make_file(size) -> a file of random bytes."""
    def make(size, name="file"):
        path = pathlib.Path(tmp_path, name)
        path.write_bytes(os.urandom(size))
        return path
    return make


@pytest.fixture
def make_checkpoint(tmp_path):
    """make_checkpoint(files) -> a folder of these files with their manifest, to be published."""
    def make(files, name="checkpoint"):
        folder = pathlib.Path(tmp_path, name)
        folder.mkdir()
        for file, data in files.items():
            (folder / file).write_bytes(data)
        listed = [{"name": file, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
                  for file, data in files.items()]
        (folder / "manifest.json").write_text(json.dumps({"files": listed}) + "\n")
        return folder
    return make
