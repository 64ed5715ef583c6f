"""One Chromium for a whole test file, spoken to over its own pipe (the DevTools protocol): no server, no network."""

import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="no chromium on this machine (Debian package chromium)")

QUIET = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
         "--force-color-profile=srgb"]


class Chromium:
    """A browser with one tab, in a `with` statement. `folder` takes its profile."""

    def __init__(self, folder: Path):
        to_read, self.write_end = os.pipe()
        self.read_end, to_write = os.pipe()

        def pipes() -> None:  # Chromium reads commands from descriptor 3 and answers on 4
            kept = os.dup(to_read), os.dup(to_write)
            for found, wanted in zip(kept, (3, 4), strict=True):
                os.dup2(found, wanted)

        self.process = subprocess.Popen(
            [CHROMIUM, *QUIET, f"--user-data-dir={folder}", "--remote-debugging-pipe", "about:blank"],
            preexec_fn=pipes, close_fds=False, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.buffer, self.last, self.session, self.events = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.size(1400)

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.write_end)  # it ends when its pipe does
        os.close(self.read_end)
        self.process.wait(timeout=30)

    def call(self, method: str, **params: Any) -> dict:
        """The result of one command of the protocol. Events that arrive before it are kept in `events`."""
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.last:
                assert "error" not in answer, f"{method}: {answer['error']['message']}"
                return answer["result"]
            self.events.append(answer)

    def open(self, url: str) -> None:
        """Load a page, and forget what the one before said. Returns when it is loaded and its fonts are there."""
        self.events.clear()
        frame = self.call("Page.navigate", url=url)
        assert "errorText" not in frame, f"{url}: {frame['errorText']}"
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())
        self.evaluate("document.fonts.ready.then(() => globalThis.MathJax?.startup?.promise).then(() => true)")

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page, as JSON; a promise is awaited. Fails with what the page threw."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found.get("exceptionDetails")
        return found["result"].get("value")

    def size(self, width: int, height: int = 900) -> None:
        """Set the size of the window in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, exceptions, and requests that failed, since `open`."""
        self.evaluate("1")  # what is on its way arrives
        told = []
        for event in self.events:
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                told.append(details.get("exception", {}).get("description") or details["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                told.append(" ".join(str(one.get("value", one.get("description"))) for one in params["args"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                told.append(f"{params['entry']['text']} {params['entry'].get('url', '')}".strip())
        return told

    def requests(self) -> list[str]:
        """The addresses that the page asked for, since `open`."""
        return [event["params"]["request"]["url"] for event in self.events
                if event["method"] == "Network.requestWillBeSent"]

    def picture(self, file: Path, whole: bool = False) -> None:
        """A screenshot as PNG, of the window or of the whole page."""
        import base64

        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]))

    def _next(self, limit: float = 60) -> dict:
        """The next message of the browser. Fails after `limit` seconds of silence."""
        end = time.monotonic() + limit
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_end], [], [], max(0, end - time.monotonic()))
            assert ready, f"Chromium said nothing for {limit} seconds"
            part = os.read(self.read_end, 2**20)
            assert part, "Chromium ended"
            self.buffer += part
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)
