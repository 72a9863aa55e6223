"""JWTs signed with the key of a running server, which its store gives away: what a thief of the key,
or a broken issuer, could send."""

import base64
import hashlib
import hmac
import json
import pathlib
import sqlite3
import subprocess
import tempfile
import time

# PKCS #8 prefix of the 32 bytes of an Ed25519 seed.
_PREFIX = bytes.fromhex("302e020100300506032b657004220420")


def _encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class TokenForge:
    def __init__(self, server, key_id):
        self.key_id = key_id
        database = sqlite3.connect(f"file:{server.data_dir}/lathe.db?mode=ro", uri=True)
        name, self._seed = database.execute(
            "SELECT name, value FROM secrets WHERE name LIKE 'jwt_signing_key_%' "
            "ORDER BY name DESC").fetchone()
        database.close()
        self.header = {"alg": "EdDSA", "typ": "JWT", "kid": name.rsplit("_", 1)[1]}

    def claims(self, **changes):
        now = int(time.time())
        return {"iss": "lathe", "aud": "lathe", "sub": self.key_id, "org_id": "default", "email": "",
                "iat": now, "exp": now + 3600, **changes}

    def _text(self, header, claims):
        # Use the order and spacing of the server's own tokens: it compares the header as text.
        return ".".join(_encode(json.dumps(part, sort_keys=True, separators=(",", ":")).encode())
                        for part in (header, claims))

    def signed(self, **changes):
        """A token with the server's signature and `changes` in its claims."""
        text = self._text(self.header, self.claims(**changes))
        with tempfile.TemporaryDirectory() as folder:
            key, message = pathlib.Path(folder, "key.der"), pathlib.Path(folder, "message")
            key.write_bytes(_PREFIX + bytes(self._seed))
            message.write_text(text)
            signature = subprocess.run(
                ["openssl", "pkeyutl", "-sign", "-rawin", "-keyform", "DER", "-inkey", key, "-in",
                 message], check=True, capture_output=True).stdout
        return f"{text}.{_encode(signature)}"

    def unsigned(self, algorithm="none"):
        return self._text({**self.header, "alg": algorithm}, self.claims()) + "."

    def with_shared_secret(self):
        """HS256 with the public key as its secret: the classic confusion of algorithms."""
        text = self._text({**self.header, "alg": "HS256"}, self.claims())
        with tempfile.TemporaryDirectory() as folder:
            key = pathlib.Path(folder, "key.der")
            key.write_bytes(_PREFIX + bytes(self._seed))
            public = subprocess.run(["openssl", "pkey", "-inform", "DER", "-in", key, "-pubout",
                                     "-outform", "DER"], check=True, capture_output=True).stdout
        return f"{text}.{_encode(hmac.new(public[-32:], text.encode(), hashlib.sha256).digest())}"
