"""What happens in the cluster happens on the page, without reloading it."""

from __future__ import annotations

import asyncio
import re

from playwright.async_api import Browser, Page, expect

from queuectl.serve.app import serving
from tests.browser.conftest import WIDE, Open, opened
from tests.browser.scene import Scene, job, running

SLOW = 15_000  # milliseconds for whatever the cluster has to do first


async def marked(page: Page) -> None:
    """Leave a mark that a reload would take away."""
    await page.evaluate("document.body.dataset.mark = 'here'")


async def same(page: Page) -> None:
    """The page was not loaded anew."""
    assert await page.evaluate("document.body.dataset.mark") == "here"


async def test_a_gang_appears_waits_with_its_reason_runs_and_ends(scene: Scene, look: Open) -> None:
    async with look(scene, "#/waiting") as page:
        await expect(page.locator("#link")).to_have_text("leading")
        await expect(page.get_by_text("Nothing waits.")).to_be_visible()
        await marked(page)

        scene.submit(job("first", "vision", 3, 2, level="rack"))  # two GPUs are left in its rack
        scene.submit(job("other", "language", 3, 2, level="rack"))  # and two in this one's
        await asyncio.to_thread(scene.until, lambda world: len(running(world)) == 6)
        scene.submit(job("second", "vision", 2, 2, level="rack"))
        row = page.get_by_role("row").filter(has_text="second")
        await expect(row).to_contain_text("NoDomainFits", timeout=SLOW)
        await expect(row).to_contain_text("4 gpu")
        await expect(page.get_by_role("row")).to_have_count(2)  # its own, and the header: the other two run

        await page.get_by_role("link", name="second").click()
        await expect(page).to_have_url(re.compile(r"#/gangs/ml/job-second-[0-9a-z]{5}$"))
        first = page.locator(".blocker").first
        await expect(first.locator(".sentence")).to_have_text(re.compile(r"^2 pods must fit into one rack"))
        await expect(first).to_contain_text("What would free it It can start when 1 more such pod fits into rack-")
        await expect(page.locator("h1")).to_have_text("second Pending")
        await expect(page.locator(".steps")).to_contain_text("0of 2 run")

        scene.end("first")
        await expect(page.locator("h1")).to_have_text("second Running", timeout=SLOW)
        await expect(page.locator(".blocker")).to_have_count(0)
        await expect(page.locator(".summary")).to_contain_text("2 of 2 pods running")
        members = page.get_by_role("table", name="Members").get_by_role("row")
        await expect(members).to_have_count(3)
        await expect(members.nth(1)).to_contain_text("Running")
        await page.get_by_role("table", name="Nodes").get_by_role("link").first.click()
        await expect(page.locator(".panel")).to_contain_text("second")
        await page.go_back()

        scene.end("second")
        await expect(page.locator(".empty")).to_contain_text("It may have ended and been deleted.", timeout=SLOW)
        await page.get_by_role("navigation").get_by_role("link", name="Gangs").click()
        await expect(page.get_by_role("row")).to_have_count(2)
        await expect(page.get_by_role("row").filter(has_text="other")).to_contain_text("Running")
        await same(page)


async def test_a_job_that_completes_is_seen_to_finish(scene: Scene, look: Open) -> None:
    async with look(scene, "#/gangs") as page:
        await marked(page)
        scene.submit(job("short", "vision", 2, 1, seconds=20))
        row = page.get_by_role("row").filter(has_text="short")
        await expect(row).to_contain_text("Running", timeout=SLOW)
        await expect(row).to_contain_text("2/2")
        await expect(row).to_contain_text("Finished", timeout=SLOW)
        await same(page)


async def test_numbers_of_the_queue_tree_follow(scene: Scene, look: Open) -> None:
    async with look(scene, "#/queues") as page:
        rows = page.get_by_role("table", name="Queues").locator("tbody tr")
        await expect(rows).to_have_count(4)
        names = await rows.locator(".name").all_inner_texts()
        assert names == ["production", "research", "language", "vision"]  # each after its parent, siblings by name
        language = rows.nth(2)
        await expect(language).to_contain_text("no limit")
        scene.submit(job("large", "language", 2, 4))
        bar = language.get_by_role("img")
        await expect(bar).to_have_attribute(
            "aria-label", "nvidia.com/gpu: 8 used, 4 of it borrowed, quota 4, no limit, 0 waited for", timeout=SLOW
        )
        await expect(language.locator(".segment.own")).to_have_attribute("style", re.compile("width: 50%"))
        await expect(language.locator(".segment.borrowed")).to_have_attribute("style", re.compile("left: 50%"))
        await expect(rows.nth(1).locator("td.used")).to_have_text("8")  # its parent, with all below it


async def test_it_reconnects_after_the_server_was_away(scene: Scene, browser: Browser) -> None:
    """It says at once that it is not live, keeps what it has and says of when, and goes on when the server is back."""
    scene.submit(job("first", "vision", 2, 4))
    async with serving(scene.controller, port=0, loop=scene.loop) as url:
        port = int(url.rpartition(":")[2])
        context = opened(browser, f"{url}/#/gangs", size=WIDE, dark=False)
        page = await context.__aenter__()
        await expect(page.get_by_role("row").filter(has_text="first")).to_contain_text("Running", timeout=SLOW)
        await marked(page)
    await expect(page.locator("#link")).to_have_text("reconnecting", timeout=SLOW)
    await expect(page.locator("#banner")).to_contain_text("The controller has not answered for", timeout=SLOW)
    await expect(page.locator("main")).to_have_class("stale")
    await expect(page.get_by_role("row").filter(has_text="first")).to_be_visible()
    stopped = await page.locator("#asof").inner_text()
    assert stopped.startswith("2030-01-01 1")
    scene.submit(job("meanwhile", "language", 1, 1))
    async with serving(scene.controller, port=port, loop=scene.loop):
        await expect(page.locator("#link")).to_have_text("leading", timeout=SLOW)
        await expect(page.get_by_role("row").filter(has_text="meanwhile")).to_be_visible(timeout=SLOW)
        await expect(page.locator("#banner")).to_be_empty()
        await expect(page.locator("main")).not_to_have_class("stale")
        assert await page.locator("#asof").inner_text() > stopped
        scene.end("meanwhile")  # and events come again, not only answers
        await expect(page.get_by_role("row").filter(has_text="meanwhile")).to_have_count(0, timeout=SLOW)
        await same(page)
        await context.__aexit__(None, None, None)


HIDE = """hidden => {
  Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


async def test_a_hidden_page_listens_to_nothing_and_catches_up(scene: Scene, look: Open) -> None:
    async with look(scene, "#/gangs") as page:
        await expect(page.locator("#link")).to_have_text("leading")
        await page.evaluate(HIDE, True)
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url.rpartition("/api/v1/")[2]))
        scene.submit(job("first", "vision", 2, 4))
        await asyncio.to_thread(scene.until, lambda world: len(running(world)) == 2)
        assert requests == []
        await page.evaluate(HIDE, False)
        await expect(page.get_by_role("row").filter(has_text="first")).to_contain_text("Running", timeout=SLOW)
        assert sorted(requests[:2]) == ["controller", "events"]
