"""A real browser that stays open: Chromium, driven over its own protocol by a pipe. For the tests of the inspector.

``tests/browser.py`` looks at a file once; this one talks to a server, is clicked, and sees several tabs. It reaches the
loopback address and nothing else. Clicks and keys are real input events, so what is covered or disabled stays so.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

LIMIT_S: Final = 30
"""Bounds a hang."""
_FLAGS: Final = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)
_KEYS: Final = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, "")}


class Chrome:
    """One browser process. Each tab has storage of its own: two tabs are two people."""

    def __init__(self, write: int, reader: asyncio.StreamReader) -> None:
        self._write = write
        self._reader = reader
        self._count = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tabs: dict[str, Tab] = {}

    async def call(self, method: str, session: str | None = None, /, **params: Any) -> Any:
        """One call of the protocol."""
        self._count += 1
        future = self._waiting[self._count] = asyncio.get_running_loop().create_future()
        told = {"id": self._count, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._write, json.dumps(told).encode() + b"\0")
        return await asyncio.wait_for(future, LIMIT_S)

    async def listen(self) -> None:
        """Hand out what the browser says, until it ends."""
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                told = json.loads((await self._reader.readuntil(b"\0"))[:-1])
                if "id" in told:
                    future = self._waiting.pop(told["id"])
                    if future.done():
                        continue
                    if "error" in told:
                        future.set_exception(AssertionError(str(told["error"])))
                    else:
                        future.set_result(told["result"])
                elif (tab := self._tabs.get(told.get("sessionId", ""))) is not None:
                    tab.heard(told["method"], told["params"])

    async def tab(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> Tab:
        """A new tab at an address, once it is loaded."""
        context = (await self.call("Target.createBrowserContext"))["browserContextId"]
        made = await self.call("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await self.call("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        tab = self._tabs[attached["sessionId"]] = Tab(self, attached["sessionId"])
        for method in ("Page.enable", "Runtime.enable", "Log.enable", "Network.enable"):
            await tab.call(method)
        await tab.look_like(width, height, dark)
        await tab.call("Page.navigate", url=url)
        return tab


class Tab:
    """One page."""

    def __init__(self, chrome: Chrome, session: str) -> None:
        self._chrome = chrome
        self._session = session
        self.console: list[str] = []
        self.requests: list[str] = []

    def heard(self, method: str, params: Any) -> None:
        """Keep what the page did."""
        if method == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(one.get("value", one)) for one in params["args"]))
        elif method == "Runtime.exceptionThrown":
            self.console.append(json.dumps(params["exceptionDetails"])[:500])
        elif method == "Log.entryAdded":
            self.console.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    async def call(self, method: str, /, **params: Any) -> Any:
        """One call of the protocol, to this tab."""
        return await self._chrome.call(method, self._session, **params)

    async def look_like(self, width: int, height: int, dark: bool = False) -> None:
        """The size and the colours that the person's device has."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def run(self, script: str) -> Any:
        """What an expression, or a promise, gives."""
        told = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def until(self, script: str, limit_s: float = 10) -> Any:
        """The first true value that an expression gives; looked at with each change of the page, and each frame."""
        wait = f"""new Promise((done, fail) => {{
          const look = () => {{ try {{ return ({script}); }} catch {{ return null; }} }};
          const late = setTimeout(() => fail(new Error("it did not come")), {limit_s * 1000});
          const again = () => {{ const got = look(); if (got) clearTimeout(late), done(got);
            else setTimeout(again, 15); }};
          again();
        }})"""
        try:
            return await self.run(wait)
        except AssertionError:
            shown = await self.run("document.body ? document.body.innerText.slice(0, 3000) : 'no page'")
            raise AssertionError(
                f"not seen: {script}\n--- the page shows\n{shown}\n--- console {self.console}"
            ) from None

    async def see(self, text: str) -> None:
        """Wait until the page shows a text."""
        await self.until(f"document.body.innerText.includes({json.dumps(text)})")

    async def click(self, selector: str, text: str = "") -> None:
        """Press the mouse where the first such element is that shows ``text`` and is enabled; wait for it first."""
        find = (
            f"[...document.querySelectorAll({json.dumps(selector)})].find((one) => "
            f"one.textContent.includes({json.dumps(text)}) && !one.disabled && one.getClientRects().length)"
        )
        await self.until(f"!!{find}")
        at = await self.run(
            f"(() => {{ const one = {find}; one.scrollIntoView({{ block: 'center' }});"
            " const box = one.getBoundingClientRect();"
            " return [box.left + box.width / 2, box.top + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)

    async def type(self, text: str) -> None:
        """Text into whatever has the focus."""
        await self.call("Input.insertText", text=text)

    async def press(self, key: str) -> None:
        """One key."""
        code, text = _KEYS.get(key, (ord(key.upper()[0]), key))
        base: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **base, **({"text": text} if text else {}))
        await self.call("Input.dispatchKeyEvent", type="keyUp", **base)

    async def picture(self, path: Path) -> None:
        """Write what it looks like."""
        told = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(told["data"]))


@contextlib.asynccontextmanager
async def chrome(program: str) -> AsyncIterator[Chrome]:
    """A browser with a profile of its own."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    script = 'exec 3<"/dev/fd/$IN" 4>"/dev/fd/$OUT"; exec "$0" "$@"'
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(prefix="chrome-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            ["sh", "-c", script, program, *_FLAGS, *root, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_read, from_write),
            env={**os.environ, "IN": str(to_read), "OUT": str(from_write)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        reader = asyncio.StreamReader(limit=2**26)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_read, "rb")
        )
        browser = Chrome(to_write, reader)
        listening = asyncio.create_task(browser.listen())
        try:
            yield browser
        finally:
            with contextlib.suppress(OSError):
                os.write(to_write, json.dumps({"id": 0, "method": "Browser.close", "params": {}}).encode() + b"\0")
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening
            transport.close()
            os.close(to_write)
            await asyncio.to_thread(process.wait, 10)
