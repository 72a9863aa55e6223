"""Rows 49 to 55 of the bad-input table: keys, configuration and the command line."""

import pathlib
import subprocess
import time

import httpx
import pytest

from bad_input_table import ROWS, row, rows_of
from conftest import refused
from support.lathe_server import BIN, LatheServer, free_port, tiny_model
from support.raw_api import RawApi
from support.tokens import TokenForge


@row(49)
def bad_keys(w):
    texts = set()
    for key in ("", "tml-", "nonsense", "tml-" + "a" * 60, w.api.key[:-1]):
        answer = httpx.get(w.server.url + "/api/v1/sessions", headers={"X-API-Key": key})
        refused(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"]
        assert "TINKER_API_KEY" in answer.json()["error"]["hint"]
        texts.add(answer.text)
    assert len(texts) == 1


@row(50)
def bad_tokens_of_keys(w):
    jwt = w.api.made("auth/token", {})["jwt"]
    forge = TokenForge(w.server, w.api.key.removeprefix("tml-").split("_")[0])
    past = int(time.time()) - 3600

    def ask(token):
        return httpx.get(w.server.url + "/api/v1/sessions", headers={"X-API-Key": token})

    assert ask(jwt).status_code == ask(forge.signed()).status_code == 200
    expired = ask(forge.signed(iat=past - 3600, exp=past))
    refused(expired, 401, "bad_token", "expired")
    first, payload, _ = forge.signed(iat=past - 3600, exp=past).split(".")
    for token in (forge.unsigned(), forge.unsigned("None"), forge.with_shared_secret(),
                  forge.signed(aud="other"), forge.signed(iss="other"), forge.signed(sub="nobody"),
                  forge.signed(iat=past + 2 * 3600, exp=past + 9 * 3600),
                  # Expired as well, but nobody signed that.
                  f"{first}.{payload}.AAAA", jwt.rsplit(".", 1)[0] + ".", jwt[:-4]):
        answer = ask(token)
        refused(answer, 401, "bad_token")
        assert "expired" not in answer.text, token
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]


@row(51)
def missing_scopes(w):
    reader = RawApi(w.server, w.server.create_key("default", scopes=["read"]))
    refused(reader.post("optim_step", w.step(1)), 403, "missing_scope", "read", "train")
    reader.close()


@row(52)
def many_wrong_keys(w):
    """On a server of its own, for the bound is that of an address."""
    with LatheServer(tiny_model(), env={"LATHE_GATEWAY__MAX_FAILED_KEYS_PER_MINUTE": "20"}) as server:
        known = RawApi(server)
        assert known.get("sessions").status_code == 200
        fresh_key = server.create_key("fresh")
        with httpx.Client(base_url=server.url + "/api/v1/") as http:
            answers = [http.get("sessions", headers={"X-API-Key": f"tml-wrong{i}"})
                       for i in range(60)]
            assert {answer.status_code for answer in answers[:20]} == {401}
            limited = [answer for answer in answers if answer.status_code == 429]
            assert len(limited) > 20
            refused(limited[0], 429, "too_many_attempts", "limit is 20")
            assert limited[0].headers["retry-after"]
            # Keys that are right are not locked out: known ones at once, others soon.
            assert known.get("sessions").status_code == 200
            deadline = time.monotonic() + 30
            while http.get("sessions", headers={"X-API-Key": fresh_key}).status_code != 200:
                assert time.monotonic() < deadline
            assert known.get("sessions").status_code == 200
        assert "many keys of one address were refused" in pathlib.Path(
            server.data_dir, "logs", "gateway.log").read_text()
        known.close()


def program(*args, **env):
    result = subprocess.run([str(BIN / args[0]), *map(str, args[1:])], capture_output=True, text=True,
                            timeout=60, env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **env})
    return result.returncode, result.stdout + result.stderr


def exits(code, *words, args, **env):
    got, output = program(*args, **env)
    assert got == code, output
    for word in words:
        assert word in output, (word, output)


@row(53)
def bad_configurations(w):
    folder = pathlib.Path(w.server.data_dir, "row53")
    folder.mkdir(exist_ok=True)
    file = folder / "lathe.yaml"
    gateway = ("lathe-gateway", "--engine", "unix:/nowhere", "--config", file)
    for text, words in (
            ("gateway:\n  idle_timout: 5s\n", [f"{file}:2", "idle_timout", "idle_timeout"]),
            ("gatway:\n  idle_timeout: 5s\n", [f"{file}:2", "gatway.idle_timeout",
                                               "gateway.idle_timeout"]),
            ("gateway:\n  threads: many\n", [f"{file}:2", "gateway.threads", "many"]),
            ("gateway:\n  idle_timeout: 5 parsecs\n", [f"{file}:2", "gateway.idle_timeout",
                                                       "5 parsecs"]),
            ("gateway:\n  threads: {a: 1}\n", [f"{file}:2", "gateway.threads"]),
            ("gateway: [\n", [f"{file}:"])):
        file.write_text(text)
        exits(78, *words, args=gateway)
    # Two sources disagree: the environment's value holds, and is the one that is complained about.
    file.write_text("gateway:\n  threads: 3\n")
    exits(78, "gateway.threads", "LATHE_GATEWAY__THREADS", "lots", args=gateway,
          LATHE_GATEWAY__THREADS="lots")
    exits(0, "gateway.threads = 4  # LATHE_GATEWAY__THREADS", args=(*gateway, "--show-config"),
          LATHE_GATEWAY__THREADS="4")
    exits(0, f"gateway.threads = 3  # {file}:2", args=(*gateway, "--show-config"))


@row(54)
def bad_surroundings(w):
    folder = pathlib.Path(w.server.data_dir, "row54")
    folder.mkdir(exist_ok=True)
    up = ("lathe", "up", "--device", "cpu", "--model", f"tiny={tiny_model()}")
    exits(69, "port_taken", str(w.server.port),
          args=(*up, "--listen", f"127.0.0.1:{w.server.port}", "--data-dir", folder / "a"))
    (folder / "file").write_text("no folder")
    exits(73, "cannot create", str(folder / "file"),
          args=(*up, "--listen", f"127.0.0.1:{free_port()}", "--data-dir", folder / "file" / "b"))
    exits(78, "model_missing", str(folder / "none"),
          args=("lathe", "up", "--model", folder / "none", "--data-dir", folder / "c"))
    exits(73, "data_dir_in_use", str(w.server.pids()["up"]),
          args=(*up, "--listen", f"127.0.0.1:{free_port()}", "--data-dir", w.server.data_dir))


@row(55)
def open_addresses(w):
    exits(78, "listen is '0.0.0.0:0'", "there is no TLS", "--insecure-i-know",
          args=("lathe", "up", "--model", f"tiny={tiny_model()}", "--listen", "0.0.0.0:0",
                "--data-dir", f"{w.server.data_dir}/row55"))


@pytest.mark.parametrize("number", rows_of(__name__))
def test_row(world, number):
    ROWS[number](world)
