"""Chromium for the tests of this folder: the system's own, and one line where there is none."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import pytest
from playwright.async_api import Browser, Page, ViewportSize, async_playwright

from queuectl.serve.app import serving
from tests.browser.scene import Scene, two_racks

WIDE: ViewportSize = {"width": 1280, "height": 800}


class Open(Protocol):
    """Serves a scene's controller and opens a page of it."""

    def __call__(
        self, scene: Scene, hash_: str = "#/queues", *, size: ViewportSize = WIDE, dark: bool = False
    ) -> AbstractAsyncContextManager[Page]:
        """The page, while the block lasts. Whatever goes wrong in it fails the test."""
        ...


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium, or make chromium)")
    return found


@pytest.fixture
async def browser(chromium: str) -> AsyncIterator[Browser]:
    """A browser of this test."""
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])  # CI is root
        yield running
        await running.close()


@asynccontextmanager
async def opened(browser: Browser, url: str, *, size: ViewportSize, dark: bool) -> AsyncIterator[Page]:
    """A page at this address; errors of its scripts, and what its policy refused, are failures."""
    problems: list[str] = []
    context = await browser.new_context(viewport=size, color_scheme="dark" if dark else "light")
    page = await context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if _bad(message.type, message.text) else None)
    await page.goto(url)
    yield page
    await context.close()
    assert problems == []


def _bad(kind: str, text: str) -> bool:
    """Whether a line on the console tells of a bug: not so that the network is down, as it is in some stories."""
    return kind == "error" and "Failed to load resource" not in text and "net::ERR" not in text


@pytest.fixture
def look(browser: Browser) -> Open:
    """``async with look(scene, "#/waiting") as page``."""

    @asynccontextmanager
    async def look(
        scene: Scene, hash_: str = "#/queues", *, size: ViewportSize = WIDE, dark: bool = False
    ) -> AsyncIterator[Page]:
        async with (
            serving(scene.controller, port=0, loop=scene.loop) as url,
            opened(browser, f"{url}/{hash_}", size=size, dark=dark) as page,
        ):
            yield page

    return look


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Two racks; nothing was submitted yet."""
    with two_racks() as running:
        yield running
