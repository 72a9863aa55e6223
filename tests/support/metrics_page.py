"""Pages of metrics of a Lathe that was started with --metrics-listen."""

import re
import time

from support import plain_http

SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')


class MetricsPages:
    """What the gateway, the engine and the worker of `server`, or worker0 and so on, say of
    themselves."""

    def __init__(self, server):
        pattern = re.compile(r"^metrics +(gateway \S+ engine \S+(?: worker\S* \S+)+)$", re.MULTILINE)
        # The line is printed after the line that LatheServer.start waits for.
        while not (lines := pattern.findall(server.output())):
            time.sleep(0.02)
        words = lines[-1].split()
        self.urls = {name: url.removesuffix("/metrics") for name, url in zip(words[::2], words[1::2])}

    def get(self, process, path):
        return plain_http.get(self.urls[process] + path, timeout=10)

    def page(self, process):
        answer = self.get(process, "/metrics")
        assert answer.status_code == 200
        return answer.text

    def types(self, process):
        """{name: counter, gauge or histogram}"""
        return dict(re.findall(r"^# TYPE (\S+) (\S+)$", self.page(process), re.MULTILINE))

    def sum(self, process, name, **labels):
        """The sum over the series that have these labels; 0 if there are none yet."""
        return sum(self._values(process, name, labels))

    def value(self, process, name, **labels):
        """The sum over the series that have these labels, of which there must be one."""
        found = self._values(process, name, labels)
        assert found, (name, labels)
        return sum(found)

    def _values(self, process, name, labels):
        found = []
        for line in self.page(process).splitlines():
            if line.startswith("#"):
                continue
            series, texts, value = SAMPLE.fullmatch(line).groups()
            if series == name and labels.items() <= dict(LABEL.findall(texts or "")).items():
                found.append(float(value))
        return found

    def wait_value(self, process, name, expected, timeout=30, **labels):
        """Waits for the value: a request is counted after its answer was sent."""
        deadline = time.monotonic() + timeout
        while True:
            found = self.sum(process, name, **labels)
            if found == expected:
                return
            assert time.monotonic() < deadline, (name, labels, found, expected)
            time.sleep(0.02)
