"""A headless Chromium that may talk to this machine alone and whose every complaint is kept.

With `CI` set a missing browser is a failure, elsewhere the tests are skipped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        message = "no Chromium: apt install chromium"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page, what it wrote to the console, and which other machines it asked."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def assert_clean(self) -> None:
        assert not self.complaints, self.complaints
        assert not self.strangers, self.strangers

    def assert_accessible(self, within: str | None = None, without: tuple[str, ...] = ()) -> None:
        """No violation of any rule of axe-core but those named, in what is shown now."""
        rules = {rule: {"enabled": False} for rule in without}
        options = {"resultTypes": ["violations"], "rules": rules}  # all others cost half the time
        results = Axe().run(self.page, context=within, options=options)
        broken = [
            f"{v['id']}: {v['help']}: {[n['html'][:150] for n in v['nodes'][:3]]}"
            for v in results.response["violations"]
        ]
        assert not broken, "\n".join(broken)


@contextmanager
def watch(browser: Browser, **options: Any) -> Iterator[Watched]:
    context: BrowserContext = browser.new_context(**options)
    watched = Watched(context.new_page())

    def route(route: Any) -> None:
        address = urlsplit(route.request.url)
        if address.hostname in (None, "", "127.0.0.1", "localhost"):
            route.continue_()
        else:
            watched.strangers.append(route.request.url)
            route.abort()

    context.route("**/*", route)
    watched.page.on(
        "console",
        lambda m: watched.complaints.append(m.text) if m.type in ("error", "warning") else None,
    )
    watched.page.on("pageerror", lambda error: watched.complaints.append(str(error)))
    yield watched
    context.close()
