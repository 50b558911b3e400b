"""Chromium without a window, driven by the DevTools protocol over two pipes: no package needed.

The pointer, the keys and the finger are the browser's own, so what covers a button or a policy that
stops a script shows.
"""

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
LAUNCHER = (
    "import os, sys\n"
    "os.dup2(int(sys.argv[1]), 3)\nos.dup2(int(sys.argv[2]), 4)\n"
    "os.execv(sys.argv[3], sys.argv[3:])"
)
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--hide-scrollbars", "--disable-extensions", "--disable-background-networking"),
    *("--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND"),
    *("--remote-debugging-pipe", "--window-size=1000,800"),
)
LONGEST_WAIT = 60.0  # seconds for one answer of a busy machine


def find_chromium():
    """Return the path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page in a browser, a context manager.

    Args:
        program: path of Chromium.
        folder: where the browser may write.
    """

    def __init__(self, program, folder):
        self.numbers = itertools.count(1)
        self.unread = b""
        self.events = []
        # high numbers, so that taking 3 and 4 covers neither of them
        to_browser, from_browser = (
            [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in os.pipe()] for _ in range(2)
        )
        self.writer, self.reader = to_browser[1], from_browser[0]
        theirs = to_browser[0], from_browser[1]
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", LAUNCHER, *map(str, theirs)),
                *(program, *OPTIONS, f"--user-data-dir={folder}", "about:blank"),
            ],
            pass_fds=theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in theirs:
            os.close(end)
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.writer)
        os.close(self.reader)

    def call(self, method, **params):
        """Send one command and return its result."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def _read(self):
        """Return the next message of the browser."""
        end = time.monotonic() + LONGEST_WAIT
        while b"\0" not in self.unread:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.reader], [], [], left)[0]:
                raise TimeoutError(f"Chromium gave no answer for {LONGEST_WAIT:.0f} s.")
            chunk = os.read(self.reader, 1 << 16)
            if not chunk:
                raise ConnectionError(f"Chromium has ended: {self.process.wait(timeout=20)}")
            self.unread += chunk
        line, _, self.unread = self.unread.partition(b"\0")
        return json.loads(line)

    def open(self, path):
        """Load a file and wait until its scripts have run."""
        self.events.clear()
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def run(self, expression):
        """Return the value of an expression of JavaScript in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def centre(self, selector):
        """Return where the middle of an element is, scrolled into view."""
        return self.run(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)});"
            "one.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const box = one.getBoundingClientRect();"
            "return {x: box.x + box.width / 2, y: box.y + box.height / 2}; })()"
        )

    def hover(self, selector):
        """Move the pointer over an element."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **self.centre(selector))

    def click(self, selector):
        """Press and release the left button over an element."""
        place = self.centre(selector) | {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **self.centre(selector))
        self.call("Input.dispatchMouseEvent", type="mousePressed", **place)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", **place)

    def tap(self, selector):
        """Touch an element with a finger."""
        place = self.centre(selector)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[place])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def press(self, key):
        """Press and release a key."""
        code = {"Tab": 9, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}
        event = {"key": key, "code": key, "windowsVirtualKeyCode": code[key]}
        self.call("Input.dispatchKeyEvent", type="rawKeyDown", **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def show_as(self, *, scheme="light", width=1000, height=800):
        """Choose light or dark and the size of the window."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def picture(self, path):
        """Write what the window shows as PNG."""
        Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def complaints(self):
        """Return what the page's console says since it was opened: errors, refused resources."""
        return [
            event["params"]
            for event in self.events
            if event.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown")
        ]

    def requests(self):
        """Return what the page asked for since it was opened."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
