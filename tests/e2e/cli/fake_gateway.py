"""A gateway that answers every GET with 200."""

import http.server
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


class Server(http.server.HTTPServer):
    # Python's own would look the host's name up.
    def server_bind(self):
        self.allow_reuse_address = True
        http.server.socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]


host, port = sys.argv[sys.argv.index("--listen") + 1].rsplit(":", 1)
Server((host, int(port)), Handler).serve_forever()
