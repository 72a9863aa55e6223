"""An HTTP server in this process that passes requests on to an object store, and does what stores
do on bad days. FaultyProxy does the same to connections; this one knows requests."""

import http.client
import http.server
import threading
import urllib.parse


def error(status, code, message="injected", headers=()):
    """An answer of a store that refuses."""
    body = f"<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return status, dict(headers), body.encode()


class Request:
    """One request, as a rule sees it."""

    def __init__(self, method, path, headers, body):
        self.method, self.path, self.headers, self.body = method, path, headers, body
        parts = urllib.parse.urlsplit(path)
        self.key = urllib.parse.unquote(parts.path)
        self.query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))

    @property
    def is_object(self):
        return self.method == "PUT" and "partNumber" not in self.query


class FaultyStore:
    """`with FaultyStore(port) as store:` listens on store.url.

    `before(request)` may give an answer in place of the server's; `after(request, answer)` may give
    another one than the server's. An answer is (status, headers, body); None leaves all as it is.
    `log` has every request."""

    def __init__(self, port=None, before=lambda request: None, after=lambda request, answer: None):
        self.port, self.before, self.after = port, before, after
        self.log = []

    def __enter__(self):
        store = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                length = int(self.headers.get("Content-Length") or 0)
                request = Request(self.command, self.path, dict(self.headers.items()),
                                  self.rfile.read(length))
                store.log.append(request)
                status, headers, body = store.answer(request)
                self.send_response(status)
                # A HEAD's length is that of the object, which is not sent. It may be missing.
                length = headers.get("Content-Length") if self.command == "HEAD" else len(body)
                sent = {name: value for name, value in headers.items()
                        if name.lower() not in ("content-length", "transfer-encoding",
                                                "connection", "date", "server")}
                for name, value in sent.items():
                    self.send_header(name, value)
                if length is not None:
                    self.send_header("Content-Length", str(length))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):  # the client has gone
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, request):
        answer = self.before(request)
        if answer is None:
            answer = self.pass_on(request)
            answer = self.after(request, answer) or answer
        return answer

    def pass_on(self, request):
        if self.port is None:
            return 200, {"ETag": '"0"'}, b""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {name: value for name, value in request.headers.items()
                   if name.lower() not in ("host", "connection")}
        # The server checks the host that was signed.
        headers["Host"] = request.headers["Host"]
        connection.request(request.method, request.path, request.body or None, headers)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, dict(response.getheaders()), body
