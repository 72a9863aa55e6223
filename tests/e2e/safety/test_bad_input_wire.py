"""Rows 1 to 20 of the bad-input table: HTTP, JSON and protobuf."""

import pathlib

import pytest
import zstandard

from bad_input_table import ROWS, row, rows_of
from conftest import refused
from support.lathe_server import LatheServer, tiny_model
from support.raw_api import RawApi, datum, tensor
from test_bad_http import ZSTD, head, refused_bytes


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


def test_hosts_that_are_configured(witness):
    """Names that the operator gives are answered to, besides those of loopback."""
    with LatheServer(tiny_model(), env={"LATHE_GATEWAY__ALLOWED_HOSTS": "lathe.example"}) as server:
        api = RawApi(server)
        for host, status in (("lathe.example", 200), ("lathe.example:443", 200), ("localhost", 200),
                             ("evil.example", 403)):
            assert api.get("sessions", headers={"Host": host}).status_code == status, host
        api.close()


@pytest.mark.parametrize("number", rows_of(__name__))
def test_row(world, number):
    ROWS[number](world)
