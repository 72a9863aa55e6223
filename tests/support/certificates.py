"""Certificates for tests, made with the openssl tool."""

import os
import pathlib
import subprocess

# Names of servers on this machine in their certificates.
_LOCAL_NAMES = ("IP:127.0.0.1", "DNS:localhost")


def _openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


class Authority:
    """A certificate authority in `folder`: `ca.crt` and what it issues, as NAME.crt and NAME.key."""

    def __init__(self, folder, name="ca"):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._name = name
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                 "-days", "2", "-subj", f"/CN=lathe test {name}", "-keyout", self.key(name),
                 "-out", self.cert(name))

    def cert(self, name):
        return str(self.folder / f"{name}.crt")

    def key(self, name):
        return str(self.folder / f"{name}.key")

    @property
    def ca(self):
        return self.cert(self._name)

    def issue(self, name, names=_LOCAL_NAMES, days=2):
        """A new key and certificate for a server called `names`; those of `name` are exchanged, each
        in one step. It ends in `days` days, before today if they are negative."""
        new_key, new_cert = self.key(name) + ".new", self.cert(name) + ".new"
        request, extensions = self.key(name) + ".csr", self.key(name) + ".ext"
        pathlib.Path(extensions).write_text("subjectAltName=" + ",".join(names))
        _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                 "-subj", f"/CN={name}", "-keyout", new_key, "-out", request)
        _openssl("x509", "-req", "-in", request, "-days", str(days), "-CA", self.ca,
                 "-CAkey", self.key(self._name), "-CAcreateserial", "-extfile", extensions,
                 "-out", new_cert)
        os.replace(new_key, self.key(name))
        os.replace(new_cert, self.cert(name))
