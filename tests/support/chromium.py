"""A headless Chromium that tests drive over a pipe, by the DevTools protocol: no port, no driver.

    with Chromium() as browser:
        page = browser.open("http://127.0.0.1:8080/ui")
        page.wait_for("document.querySelector('h1')")
"""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PROGRAM = shutil.which("chromium") or shutil.which("google-chrome")
# A loaded machine may take long to draw.
PATIENCE = 60


class BrowserError(RuntimeError):
    pass


class Chromium:
    def __init__(self):
        self._profile = tempfile.mkdtemp(prefix="lathe-chromium-")
        # The browser reads commands from descriptor 3 and writes answers to 4.
        commands, self._to_browser = os.pipe()
        self._from_browser, answers = os.pipe()

        def give_pipes():
            # Copies above 4 first, so that neither replaces the other.
            read, write = os.dup(commands), os.dup(answers)
            os.dup2(read, 3)
            os.dup2(write, 4)

        # The tests' pages come from this machine, and containers allow no sandbox of Chromium's.
        self.process = subprocess.Popen(
            [PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-extensions", "--disable-background-networking",
             f"--user-data-dir={self._profile}", "--remote-debugging-pipe", "about:blank"],
            preexec_fn=give_pipes, close_fds=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        self._numbers = itertools.count(1)
        self._received = b""
        self._events = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self._to_browser)
        os.close(self._from_browser)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _read_message(self, deadline):
        while b"\0" not in self._received:
            if not select.select([self._from_browser], [], [], max(0, deadline - time.monotonic()))[0]:
                raise BrowserError(f"the browser said nothing for {PATIENCE} s")
            piece = os.read(self._from_browser, 1 << 20)
            if not piece:
                raise BrowserError("the browser has ended")
            self._received += piece
        message, _, self._received = self._received.partition(b"\0")
        return json.loads(message)

    def command(self, method, session=None, **params):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to_browser, data):]
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._read_message(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._events.append(answer)

    def take_events(self, session):
        """The events of a page since the last call."""
        mine = [event for event in self._events if event.get("sessionId") == session]
        self._events = [event for event in self._events if event.get("sessionId") != session]
        return mine

    def open(self, url, width=1280, height=800, dark=False, beside=None):
        """A tab with cookies of its own; with `beside`, another tab, with those of that tab."""
        context = beside.context if beside else self.command("Target.createBrowserContext")["browserContextId"]
        target = self.command("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, target, session, context)
        for domain in ("Page", "Runtime", "Log"):
            page.command(f"{domain}.enable")
        page.resize(width, height)
        page.set_dark(dark)
        page.go(url)
        return page


class Page:
    """A tab. What its console and its policy complained about is in `complaints()`."""

    def __init__(self, browser, target, session, context):
        self.browser = browser
        self.context = context
        self._target = target
        self._session = session
        self._complaints = []

    def command(self, method, **params):
        return self.browser.command(method, self._session, **params)

    def close(self):
        self.browser.command("Target.closeTarget", targetId=self._target)

    def go(self, url):
        self.command("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def resize(self, width, height=800):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height,
                     deviceScaleFactor=1, mobile=False)

    def set_dark(self, dark):
        self.command("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def evaluate(self, expression):
        """The value of the expression, awaited."""
        answer = self.command("Runtime.evaluate", expression=expression, awaitPromise=True,
                              returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def wait_for(self, expression, timeout=PATIENCE):
        """Returns the value of the expression as soon as it is true; an element counts as True."""
        deadline = time.monotonic() + timeout
        plain = f"((value) => value instanceof Node ? true : value)({expression})"
        while not (value := self.evaluate(plain)):
            if time.monotonic() > deadline:
                raise BrowserError(f"not within {timeout} s: {expression}\n{self.text()[:2000]}")
            time.sleep(0.05)
        return value

    def text(self):
        return self.evaluate("document.body.innerText")

    def press(self, key):
        text = key if len(key) == 1 else "\r" if key == "Enter" else ""
        code = {"Enter": 13, "Escape": 27}.get(key, 0)
        for kind in ({"type": "keyDown", "text": text}, {"type": "keyUp"}):
            self.command("Input.dispatchKeyEvent", key=key, windowsVirtualKeyCode=code, **kind)

    def type(self, text):
        self.command("Input.insertText", text=text)

    def screenshot(self, path):
        image = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(image["data"]))

    def complaints(self):
        """Errors of the console and violations of the policy so far. Failed requests are none."""
        for event in self.browser.take_events(self._session):
            params = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                self._complaints.append(json.dumps(params["exceptionDetails"])[:500])
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                self._complaints.append(json.dumps(params["args"])[:500])
            elif event["method"] == "Log.entryAdded":
                entry = params["entry"]
                if entry["level"] in ("error", "warning") and entry["source"] != "network":
                    self._complaints.append(entry["text"])
        return self._complaints
