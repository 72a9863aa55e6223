"""Identity providers of tests/signin, each a program of Node on a port of its own."""

import json
import pathlib
import shutil
import subprocess

import httpx

FOLDER = pathlib.Path(__file__).parents[1] / "signin"
IS_INSTALLED = (FOLDER / "node_modules/oidc-provider").exists() and shutil.which("node") is not None
WHY_NOT = "no node or packages of tests/signin here; tools/setup installs them"


class IdentityProvider:
    """`program`: provider.mjs, or hostile.mjs."""

    def __init__(self, program):
        self.process = subprocess.Popen(["node", FOLDER / program], cwd=FOLDER, text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)
        self.issuer = json.loads(self.process.stdout.readline())["issuer"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def control(self, **changes):
        return httpx.post(self.issuer + "/control", json=changes, timeout=30).json()

    def count(self, path):
        """How often an address was asked."""
        return httpx.get(self.issuer + "/control", timeout=30).json()["asked"].get(path, 0)

    def options(self, folder):
        """Options of a Lathe that trusts this provider. Their file is in `folder`."""
        file = pathlib.Path(folder, "lathe.yaml")
        file.write_text(json.dumps({"auth": {
            "oidc_issuer": self.issuer, "oidc_client_id": "lathe", "oidc_name": "Test ID",
            "role_map": ["groups=operators:operator", "groups=lab:member@lab", "groups=guests:viewer@lab"]}}))
        return ["--config", str(file)]
