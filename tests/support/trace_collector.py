"""A collector of OTLP traces over HTTP, which reads spans with OpenTelemetry's own messages."""

import base64
import http.server
import json
import threading
import time

import pytest
from support import deploy_packages  # noqa: F401

json_format = pytest.importorskip("google.protobuf.json_format")
trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2",
                                    reason="tools/setup --deploy installs opentelemetry-proto")
ID_FIELDS = ("traceId", "spanId", "parentSpanId")


def parse(body):
    """The ExportTraceServiceRequest of a request. OTLP's JSON differs from protobuf's in that ids are
    hexadecimal. Unknown fields and wrong types are errors."""
    document = json.loads(body)
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for field in ID_FIELDS:
                    if field in span:
                        assert span[field] == span[field].lower()
                        span[field] = base64.b64encode(bytes.fromhex(span[field])).decode()
    return json_format.ParseDict(document, trace_service.ExportTraceServiceRequest())


class Span:
    def __init__(self, message, service):
        self.service = service
        self.name = message.name
        self.trace_id = message.trace_id.hex()
        self.span_id = message.span_id.hex()
        self.parent_id = message.parent_span_id.hex()
        self.begin = message.start_time_unix_nano
        self.end = message.end_time_unix_nano
        self.kind = message.kind
        self.status = message.status.code
        self.attributes = {one.key: getattr(one.value, one.value.WhichOneof("value"))
                           for one in message.attributes}
        assert len(message.trace_id) == 16 and len(message.span_id) == 8
        assert len(message.parent_span_id) in (0, 8)
        assert 0 < self.begin <= self.end


class TraceCollector:
    """`status`: its answer. `delay`: seconds until the answer. Usable as a context."""

    def __init__(self, status=200, delay=0):
        self.bodies = []
        self.headers = []
        self.is_over = threading.Event()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.headers.append((self.path, dict(self.headers)))
                if status == 200:
                    collector.bodies.append(body)
                collector.is_over.wait(delay)
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *_):
                pass  # the sender has given up

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.server.shutdown()
        self.server.server_close()

    def spans(self):
        found = []
        for body in list(self.bodies):
            for resource in parse(body).resource_spans:
                service = {one.key: one.value.string_value for one in resource.resource.attributes}
                found += [Span(span, service["service.name"])
                          for scope in resource.scope_spans for span in scope.spans]
        return found

    def wait(self, condition, timeout=60):
        """The spans once `condition(spans)` holds."""
        deadline = time.monotonic() + timeout
        while not condition(spans := self.spans()):
            assert time.monotonic() < deadline, [(span.service, span.name) for span in spans]
            time.sleep(0.1)
        return spans
