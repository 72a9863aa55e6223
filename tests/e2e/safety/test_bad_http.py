"""Rows 1 to 12 of the bad-input table: HTTP itself."""

import json
import struct

import pytest
import zstandard

from conftest import refused

ZSTD = {"Content-Type": "application/x-protobuf", "Content-Encoding": "zstd"}


def head(api, lines="", path="/api/v1/telemetry"):
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {api.key}\r\n{lines}").encode()


def refused_bytes(answer, status, code, *words):
    got, headers, body = answer
    assert got == status, body
    assert int(headers["content-length"]) == len(body) > 0
    error = json.loads(body)["error"]
    assert error["code"] == code, error
    for word in words:
        assert word in error["message"], error


def test_large_heads(api):
    refused_bytes(api.exchange(head(api, f"X: {'x' * 9000}\r\n\r\n")), 431, "headers_too_large",
                  "8192")
    many = "".join(f"X{i}: 1\r\n" for i in range(101))
    refused_bytes(api.exchange(head(api, many + "\r\n")), 431, "headers_too_large", "103", "100")


def test_bodies_over_the_limit(api):
    path = "/api/v1/forward_backward"
    refused_bytes(api.exchange(head(api, "Content-Length: 134217729\r\n\r\n", path)),
                  413, "body_too_large", "134217728")
    answer = api.post("create_session", content=b" " * (1 << 20) + b"{}")
    refused(answer, 413, "body_too_large", "1048576")
    assert "fwdbwd_max_chunk_bytes_count" in answer.json()["error"]["hint"]
    chunks = b"".join(b"100000\r\n" + b" " * (1 << 20) + b"\r\n" for _ in range(2)) + b"0\r\n\r\n"
    refused_bytes(api.exchange(head(api, "Transfer-Encoding: chunked\r\n\r\n",
                                    "/api/v1/create_session") + chunks), 413, "body_too_large")


def test_chunk_abuse(api):
    chunked = head(api, "Transfer-Encoding: chunked\r\n\r\n")
    assert api.exchange(chunked + b"5\r\nhello\r\n0\r\n\r\n")[0] == 200
    for abuse in (b"5;" + b"x" * 70000 + b"\r\nhello\r\n0\r\n\r\n",
                  b"5\r\nhello\r\n0\r\nX: " + b"x" * 70000 + b"\r\n\r\n",
                  b"-2\r\nhello\r\n0\r\n\r\n", b"fffffffffffffffff\r\nhello", b"zz\r\n"):
        assert api.exchange(chunked + abuse)[0] in (400, 413, None)


@pytest.mark.parametrize("lines", [
    "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Content-Length: -1\r\n",
    "Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length: +5\r\n",
    "Content-Length: 99999999999999999999\r\n",
    "Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding: identity\r\n",
    "X-Folded: a\r\n b\r\n", "X-Folded: a\r\n\tb\r\n", "No colon at all\r\n", ": no name\r\n",
    "X: a\x00b\r\n"])
def test_malformed_heads(api, lines):
    refused_bytes(api.exchange(head(api, lines + "\r\nhello")), 400, "malformed_http")


@pytest.mark.parametrize("first", [
    b"POST /api/v1/telemetry HTTP/3.0", b"GARBAGE", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0", b"POST  /api/v1/telemetry HTTP/1.1"])
def test_malformed_request_lines(api, first):
    assert api.exchange(first + b"\r\n\r\n")[0] == 400


def test_content_encodings(api):
    for encoding in ("gzip", "br", "zstd, zstd", "deflate", "x" * 100):
        refused(api.post("forward_backward", content=b"abc", headers={
            **ZSTD, "Content-Encoding": encoding}), 415, "unsupported_encoding", encoding[:20],
            "identity, zstd")


def test_zstd_bombs_and_windows(api):
    bomb = zstandard.compress(b"\0" * (600 << 20))
    refused(api.post("forward_backward", content=bomb, headers=ZSTD), 413, "decompressed_too_large",
            "536870912")
    wide = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(
        window_log=27)).compressobj()
    content = wide.compress(bytes(range(256)) * 65536) + wide.flush()
    refused(api.post("forward_backward", content=content, headers=ZSTD), 400, "zstd_window",
            "8 MiB")


def test_damaged_zstd(api):
    frame = zstandard.compress(bytes(range(256)) * 100)
    dictionary = struct.pack("<I", 0xFD2FB528) + b"\x23\x07\x00\x00\x00\x05" + b"\x00" * 8
    for content in (b"not zstd", frame[:-5], frame + b"x", frame + frame, dictionary, b""):
        refused(api.post("forward_backward", content=content, headers=ZSTD), 400, "bad_compression",
                "byte")


def test_unknown_routes_methods_and_types(api):
    refused(api.get("get_server_capabilitys"), 404, "unknown_route", "/get_server_capabilities")
    answer = api.get("optim_step")
    refused(answer, 405, "method_not_allowed", "GET", "POST")
    assert answer.headers["allow"] == "POST"
    for path in ("get_info", "optim_step", "asample", "create_session", "weights_info"):
        refused(api.post(path, content=b"{}", headers={"Content-Type": "text/plain"}), 415,
                "unsupported_media_type", "application/json")
    refused(api.post("forward_backward", content=b"{}", headers={"Content-Type": "text/xml"}), 415,
            "unsupported_media_type", "application/x-protobuf")


@pytest.mark.parametrize("path", [
    "sessions/%2e%2e%2fadmin", "sessions/%2e%2e", "sessions/..", "sessions/a%2fb", "sessions/%00",
    "sessions/%ff", "sessions/a%", "sessions/a%zz", "sessions/%0a", "sessions/caf\xc3\xa9"])
def test_bad_paths(api, path):
    line = f"GET /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {api.key}\r\n\r\n"
    status, _, body = api.exchange(line.encode("latin-1"))
    assert (status, json.loads(body)["error"]["code"]) in ((400, "bad_path"),
                                                           (400, "malformed_http"))


def test_a_path_is_decoded_once(api):
    refused(api.get("sessions/%252e%252e%252fadmin"), 404, "not_found", "%2e%2e%2fadmin")


@pytest.mark.parametrize("method, path", [
    ("POST", "create_session"), ("GET", "sessions"), ("GET", "healthz"),
    ("PUT", "training_runs/a:train:0/checkpoints/weights/b/ttl"),
    ("DELETE", "training_runs/a:train:0/checkpoints/weights/b")])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://"])
def test_pages_of_other_origins(api, method, path, origin):
    refused(api.request(method, path, headers={"Origin": origin}), 403, "bad_origin", origin)


def test_own_pages_and_preflights(api):
    assert api.get("healthz", headers={"Origin": api.server.url}).status_code == 200
    answer = api.request("OPTIONS", "create_session", headers={
        "Origin": "http://evil.example", "Access-Control-Request-Method": "POST"})
    assert answer.status_code in (403, 405)
    assert not [name for name in answer.headers if name.startswith("access-control")]
