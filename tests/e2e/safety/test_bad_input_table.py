"""The bad-input table, row by row under its numbers: one telling case each. More cases of a row are in
the other files of this folder. After each the server lives and nothing has changed."""

import pathlib
import sqlite3
import subprocess
import time

import httpx
import pytest
import zstandard

from conftest import refused
from support.lathe_server import BIN, LatheServer, free_port, tiny_model
from support.raw_api import ADAM, RawApi, RawModel, datum, tensor
from support.tokens import TokenForge
from test_bad_http import ZSTD, head, refused_bytes

# Rows that ask for what Lathe has not, and why there is nothing to refuse.
NOT_OFFERED = {
    40: "the API has no field for a regular expression, a grammar or a chat template",
    47: "nobody uploads safetensors: checkpoints are written by the worker alone; its reader of base "
        "models is fuzzed (tests/fuzz/safetensors_fuzz.cc)",
    48: "nobody uploads archives: they are generated, never unpacked",
}
ROWS = {}


def row(number):
    def keep(case):
        assert number not in ROWS
        ROWS[number] = case
        return case
    return keep


class World:
    """What the cases send from: a tenant with a model and a sampler."""

    def __init__(self, witness):
        self.api, self.server = witness.api, witness.api.server
        self.model = RawModel(self.api)
        self.sampler = self.api.made("create_sampling_session", {
            "session_id": self.model.session_id, "sampling_session_seq_id": 0,
            "base_model": self.server.model_name})["sampling_session_id"]

    def post(self, path, body, **options):
        return self.api.post(path, body, **options)

    def json_text(self, text):
        return self.api.post("optim_step", content=text,
                             headers={"Content-Type": "application/json"})

    def protobuf(self, content, **headers):
        return self.api.post("forward_backward", content=content,
                             headers={"Content-Type": "application/x-protobuf", **headers})

    def step(self, seq_id, **adam):
        return {"model_id": self.model.model_id, "seq_id": seq_id, "adam_params": {**ADAM, **adam}}

    def sample(self, prompt=None, num_samples=1, **params):
        return self.post("asample", {
            "sampling_session_id": self.sampler, "seq_id": 0, "num_samples": num_samples,
            "prompt": {"chunks": prompt or [{"type": "encoded_text", "tokens": [30]}]},
            "sampling_params": {"max_tokens": 1, **params}})

    def fails(self, *words, **changes):
        """A batch that is accepted, and whose future says what is wrong with it."""
        model = RawModel(self.api)
        result = self.api.result(model.forward_backward(**changes).json())
        assert result["category"] == "user", result
        for word in words:
            assert word in result["error"], (word, result["error"])


@pytest.fixture(scope="module")
def world(witness):
    return World(witness)


@row(1)
def large_heads(w):
    refused_bytes(w.api.exchange(head(w.api, f"X: {'x' * 9000}\r\n\r\n")), 431, "headers_too_large",
                  "8192")


@row(2)
def large_bodies(w):
    refused_bytes(w.api.exchange(head(w.api, "Content-Length: 134217729\r\n\r\n",
                                      "/api/v1/forward_backward")), 413, "body_too_large",
                  "134217728")


@row(3)
def chunk_trailers(w):
    chunked = head(w.api, "Transfer-Encoding: chunked\r\n\r\n")
    assert w.api.exchange(chunked + b"5\r\nhello\r\n0\r\nX: " + b"x" * 70000 + b"\r\n\r\n")[0] in (
        400, 413, None)


@row(4)
def two_lengths(w):
    for lines in ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Content-Length: -1\r\n"):
        refused_bytes(w.api.exchange(head(w.api, lines + "\r\nhello")), 400, "malformed_http")


@row(5)
def other_transfer_encodings(w):
    for lines in ("Transfer-Encoding: gzip, chunked\r\n", "X-Folded: a\r\n b\r\n"):
        refused_bytes(w.api.exchange(head(w.api, lines + "\r\nhello")), 400, "malformed_http")


@row(6)
def content_encodings(w):
    refused(w.protobuf(b"abc", **{"Content-Encoding": "br"}), 415, "unsupported_encoding", "br",
            "identity, zstd")


@row(7)
def bombs(w):
    refused(w.protobuf(zstandard.compress(b"\0" * (600 << 20)), **ZSTD), 413,
            "decompressed_too_large", "536870912")


@row(8)
def wide_windows(w):
    wide = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(
        window_log=27)).compressobj()
    refused(w.protobuf(wide.compress(bytes(range(256)) * 65536) + wide.flush(), **ZSTD), 400,
            "zstd_window", "8 MiB")


@row(9)
def damaged_frames(w):
    refused(w.protobuf(zstandard.compress(bytes(range(256)) * 100)[:-5], **ZSTD), 400,
            "bad_compression", "byte")


@row(10)
def unknown_routes(w):
    refused(w.api.get("get_server_capabilitys"), 404, "unknown_route", "/get_server_capabilities")
    answer = w.api.get("optim_step")
    refused(answer, 405, "method_not_allowed", "GET", "POST")
    assert answer.headers["allow"] == "POST"
    refused(w.api.post("optim_step", content=b"{}", headers={"Content-Type": "text/plain"}), 415,
            "unsupported_media_type", "application/json")


@row(11)
def bad_paths(w):
    for path in ("%2e%2e%2fadmin", "%00", "%ff"):
        refused(w.api.get("sessions/" + path), 400, "bad_path")


@row(12)
def other_sites(w):
    for method, path in (("POST", "create_session"), ("PUT", "training_runs/a:train:0/checkpoints/"
                                                      "weights/b/ttl"),
                         ("DELETE", "auth/apikey/me"), ("GET", "/docs"), ("GET", "healthz")):
        for host in ("evil.example", f"evil.example:{w.server.port}", "127.0.0.1.evil.example"):
            refused(w.api.request(method, path, headers={"Host": host}), 403, "bad_origin", host,
                    "gateway.allowed_hosts", field="Host")
            # A name pointed at this server: Host and Origin agree.
            refused(w.api.request(method, path, headers={"Host": host, "Origin": f"http://{host}"}),
                    403, "bad_origin", host, field="Host")
        refused(w.api.request(method, path, headers={"Origin": "http://evil.example"}), 403,
                "bad_origin", "evil.example", field="Origin")
    for host in ("localhost", f"LOCALHOST:{w.server.port}", "127.0.0.1", "[::1]:1"):
        assert w.api.get("/docs", headers={"Host": host}).status_code == 200


@row(13)
def no_json(w):
    refused(w.json_text(b'{"a": 1,\n "b": }'), 400, "bad_json", "line 2, column 7")


@row(14)
def deep_json(w):
    refused(w.json_text(b"[" * 65 + b"]" * 65), 400, "too_deep", "64")


@row(15)
def bad_numbers(w):
    refused(w.json_text(b'{"seq_id": 1, "seq_id": 1}'), 400, "duplicate_key", "/seq_id")
    for number in (b"1e999", b"18446744073709551616"):
        refused(w.json_text(b'{"model_id": "m", "seq_id": ' + number + b"}"), 400, "bad_number",
                "/seq_id")
    refused(w.json_text(b'{"seq_id": NaN}'), 400, "bad_number", "NaN", "line 1")


@row(16)
def wrong_types(w):
    refused(w.post("get_info", {"model_id": 5}), 400, "invalid_field", "/model_id", "got number",
            field="/model_id")
    refused(w.post("get_info", {}), 400, "invalid_field", "missing", field="/model_id")


@row(17)
def unknown_fields(w):
    """Routes of the Tinker API alone take bodies, so none is refused for an unknown field; the
    configuration is row 53."""
    log = pathlib.Path(w.server.data_dir, "logs", "gateway.log")
    for _ in range(3):
        assert w.post("create_session", {"tags": [], "user_metadatum": {"a": [1]}}).status_code == 200
    lines = [line for line in log.read_text().splitlines() if "/user_metadatum" in line]
    assert len(lines) == 1, lines
    assert '"user_metadata"' in lines[0] or "nearest=user_metadata" in lines[0], lines


@row(18)
def no_protobuf(w):
    refused(w.protobuf(b"\x0a\x05ab"), 400, "bad_proto", "model_id", "length 5", "2 bytes")


@row(19)
def bad_tensors(w):
    w.fails("weights", "[4]", "bytes", data=[datum(weights=tensor([1.0] * 3, shape=[4]))])
    w.fails("weights", "[-3]", data=[datum(weights=tensor([1.0] * 3, shape=[-3]))])


@row(20)
def bad_sparse_tensors(w):
    sparse = {"data": [1, 1, 1], "dtype": "int64", "shape": [3, 4],
              "sparse_crow_indices": [0, 1, 2, 3], "sparse_col_indices": [0, 1, 4]}
    w.fails("target_tokens", "4", data=[datum(target_tokens=sparse, weights=None)])


@row(21)
def bad_seq_ids(w):
    for seq_id in (-1, 2**31):
        refused(w.post("optim_step", w.step(seq_id)), 400, "bad_seq_id", str(seq_id), "2147483647",
                field="seq_id")


@row(22)
def seq_ids_used_twice(w):
    model = RawModel(w.api)
    body = {"model_id": model.model_id, "seq_id": 1, "adam_params": ADAM}
    first = w.api.made("optim_step", body)
    refused(w.post("optim_step", {**body, "adam_params": {**ADAM, "beta1": 0.5}}), 400,
            "seq_id_reused", "1", "TrainingClient")
    w.api.result(first)


@row(23)
def seq_ids_far_ahead(w):
    model = RawModel(w.api)
    answer = w.post("optim_step", {"model_id": model.model_id, "seq_id": 70000, "adam_params": ADAM})
    refused(answer, 429, "too_far_ahead", "70000", "limit is 65536", field="seq_id")
    assert int(answer.headers["Retry-After"]) > 0


@row(24)
def what_is_not_there(w):
    stranger = RawApi(w.server, w.server.create_key("bad-input-stranger"))
    foreign = stranger.post("get_info", {"model_id": w.model.model_id})
    refused(foreign, 404, "not_found")
    absent = stranger.post("get_info", {"model_id": "absent"})
    assert foreign.text.replace(w.model.model_id, "absent") == absent.text
    stranger.close()


@row(25)
def results_past_their_time(w):
    """The SDK repeats such a sample and tells a training program that its promise is lost."""
    with LatheServer(tiny_model()) as server:
        api = RawApi(server)
        future = api.made("optim_step", {"model_id": RawModel(api).model_id, "seq_id": 1,
                                         "adam_params": ADAM})
        assert "error" not in api.result(future)
        server.stop()
        # What the purge does to it an hour after its delivery.
        with sqlite3.connect(f"{server.data_dir}/lathe.db") as database:
            database.execute("DELETE FROM results WHERE request_id = ?", (future["request_id"],))
        database.close()
        server.start()
        refused(api.post("retrieve_future", future), 410, "result_expired", "1 h after", "24 h", field="request_id")
        api.close()


@row(26)
def empty_batches(w):
    w.fails("data is empty", data=[])
    w.fails("data[1].model_input", "no tokens", data=[datum(), datum([])])


@row(27)
def bad_tokens(w):
    w.fails("data[0].model_input", "position 1", "-1", "vocabulary", data=[datum([30, -1, 32])])


@row(28)
def long_sequences(w):
    w.fails("100000 tokens", "limit is", data=[datum([30] * 100_000)])


@row(29)
def bad_losses(w):
    w.fails("'no_such_loss'", "cross_entropy", loss_fn="no_such_loss")
    w.fails("weights", "2", "3", data=[datum(weights=tensor([1.0] * 2))])


@row(30)
def numbers_that_are_not_finite(w):
    w.fails("weights", "position 1", data=[datum(weights=tensor([1.0, 1e39, 1.0]))])


@row(31)
def bad_loss_configs(w):
    inputs = {"target_tokens": tensor([31, 32, 33], "int64"), "logprobs": tensor([-1.0] * 3),
              "advantages": tensor([1.0] * 3)}
    w.fails("clip_low_threshold", "-0.5", data=[datum(inputs=inputs)], loss_fn="ppo",
            loss_fn_config={"clip_low_threshold": -0.5})


@row(32)
def bad_optimizers(w):
    refused(w.post("optim_step", w.step(1, beta1=1.0)), 400, "bad_optimizer", "beta1 is 1", "[0, 1)",
            field="adam_params.beta1")
    refused(w.post("optim_step", w.step(1, learning_rate=-1)), 400, "bad_optimizer", "-1")


@row(33)
def steps_without_gradient(w):
    metrics = w.api.result(w.api.made("optim_step", {
        "model_id": RawModel(w.api).model_id, "seq_id": 1, "adam_params": ADAM}))["metrics"]
    assert metrics["no_gradient"] == 1.0 and metrics["grad_norm"] == 0.0


@row(34)
def steps_over_a_failure(w):
    model = RawModel(w.api)
    failing = model.forward_backward(data=[])
    step = w.api.made("optim_step", {"model_id": model.model_id, "seq_id": 2, "adam_params": ADAM})
    assert "error" in w.api.result(failing.json())
    result = w.api.result(step)
    assert result["category"] == "user" and "seq 1 failed" in result["error"]


@row(35)
def bad_lora_configs(w):
    body = {"session_id": w.model.session_id, "model_seq_id": 1, "base_model": "tiny"}
    refused(w.post("create_model", {**body, "lora_config": {"rank": 0}}), 400, "bad_lora",
            "rank is 0", "1 to 512")
    refused(w.post("create_model", {**body, "base_model": "no/such"}), 404, "unknown_base_model",
            "'no/such'", "tiny")


@row(36)
def checkpoints_of_another_geometry(w):
    small, large = RawModel(w.api, rank=2), RawModel(w.api, rank=8)
    path = w.api.result(w.api.made("save_weights", {"model_id": small.model_id, "seq_id": 1,
                                                    "path": "row36"}))["path"]
    # Known when its turn comes: an operation before it may still write the checkpoint.
    load = w.api.made("load_weights", {"model_id": large.model_id, "seq_id": 1, "path": path,
                                       "optimizer": True})
    failure = w.api.result(load)
    assert failure["category"] == "user"
    assert "rank 2" in failure["error"] and "rank 8" in failure["error"]


@row(37)
def bad_numbers_of_samples(w):
    for count in (0, 10**9):
        refused(w.sample(num_samples=count), 400, "invalid_field", f"num_samples is {count}",
                "1 to 1024")


@row(38)
def bad_sampling_values(w):
    refused(w.sample(temperature=-0.5), 400, "invalid_field", "temperature is -0.5", "at least 0")
    refused(w.sample(top_p=0), 400, "invalid_field", "top_p is 0", "(0, 1]")
    refused(w.sample(max_tokens=10**9), 400, "too_long", "context window", "1000000000 max_tokens")


@row(39)
def bad_stops(w):
    refused(w.sample(stop=["x"] * 65), 400, "invalid_field", "65 strings", "limit is 64")
    refused(w.sample(stop=[""]), 400, "invalid_field", "stop[0] has 0 bytes")


@row(41)
def images(w):
    """No kind of image is taken, so none is decoded."""
    refused(w.sample(prompt=[{"type": "image", "data": "!", "format": "png"}]), 400,
            "unsupported_chunk", "image")


@row(42)
def images_elsewhere(w):
    answer = w.sample(prompt=[{"type": "image_asset_pointer", "location": "http://169.254.169.254/",
                               "format": "png"}])
    refused(answer, 400, "unsupported_chunk", "image_asset_pointer")
    assert "169.254" not in answer.text


@row(43)
def bad_names(w):
    for name in ("../../etc", "a\x00b", ".hidden", "x" * 129, "a\u202eb"):
        refused(w.post("save_weights", {"model_id": w.model.model_id, "seq_id": 1, "path": name}),
                400, "bad_name", "128", field="path")


@row(44)
def bad_tinker_paths(w):
    refused(w.post("weights_info", {"tinker_path": "tinker://a/weights/../b"}), 400, "bad_path",
            "expected tinker://", field="tinker_path")
    refused(w.post("weights_info", {"tinker_path": "tinker://absent:train:0/weights/b"}), 404,
            "not_found")


@row(45)
def bad_lifetimes_and_pages(w):
    refused(w.post("save_weights", {"model_id": w.model.model_id, "seq_id": 1, "path": "a",
                                    "ttl_seconds": -1}), 400, "bad_ttl", "-1", field="ttl_seconds")
    for limit in (-1, 10**9):
        refused(w.api.get(f"sessions?limit={limit}"), 400, "bad_page", f"limit is {limit}",
                "1 to 1000", field="limit")


@row(46)
def large_metadata(w):
    refused(w.post("create_session", {"tags": [], "user_metadata": {"k": "v" * 16385}}), 400,
            "bad_metadata", "16386", "16384")


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


def test_hosts_that_are_configured(witness):
    """Names that the operator gives are answered to, besides those of loopback."""
    with LatheServer(tiny_model(), env={"LATHE_GATEWAY__ALLOWED_HOSTS": "lathe.example"}) as server:
        api = RawApi(server)
        for host, status in (("lathe.example", 200), ("lathe.example:443", 200), ("localhost", 200),
                             ("evil.example", 403)):
            assert api.get("sessions", headers={"Host": host}).status_code == status, host
        api.close()


def test_every_row_is_here():
    assert set(ROWS) | set(NOT_OFFERED) == set(range(1, 56))
    assert not set(ROWS) & set(NOT_OFFERED)


@pytest.mark.parametrize("number", sorted(ROWS))
def test_row(world, number):
    ROWS[number](world)
