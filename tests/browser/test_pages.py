"""The pages themselves: hostile names, keys, themes, widths, and what is said when not all is well."""

from __future__ import annotations

import re
from typing import Any

from playwright.async_api import Browser, Page, expect

from queuectl.contract.foreign import NODES, QUEUES
from queuectl.serve.app import serving
from tests.browser.conftest import Open
from tests.browser.scene import ADMIN, Scene, job, queue, running, stranger

SLOW = 15_000
LONG = "x" * 253
RTL = "\u202egnp.exe"


def waiting(scene: Scene) -> None:
    """Two gangs fill the cluster, four wait for different reasons."""
    scene.submit(job("train", "vision", 2, 4, level="rack"))
    scene.submit(job("tune", "language", 2, 4, level="rack"))
    scene.until(lambda world: len(running(world)) == 4)
    scene.submit(job("big", "vision", 8, 4, level="rack"))
    scene.submit(job("next", "language", 2, 2, level="rack"))
    scene.submit(job("lost", "nowhere", 1, 1))
    scene.group("crew", queue="vision", minMember=3)


async def test_hostile_names_are_text(scene: Scene, look: Open) -> None:
    """Names that the API would refuse are put where the page gets its data from: whatever comes, nothing is parsed."""
    evil = f"<img src=x onerror=alert(1)>{RTL}</td><script>alert(2)</script>"
    waiting(scene)
    async with look(scene, "#/waiting") as page:
        await expect(page.get_by_role("row").filter(has_text="big")).to_be_visible(timeout=SLOW)

        async def poisoned(route: Any) -> None:
            answer = await route.fetch()
            if answer.status != 200:
                await route.fulfill(response=answer)
                return
            await route.fulfill(response=answer, body=(await answer.text()).replace("big", evil).replace("lost", LONG))

        dialogs: list[str] = []
        page.on("dialog", lambda dialog: dialogs.append(dialog.message))
        await page.route("**/api/v1/gangs?**", poisoned)
        await page.route("**/api/v1/**/gangs/**", poisoned)
        await page.reload()
        row = page.get_by_role("row").filter(has_text="onerror")
        await expect(row).to_contain_text(r"<img src=x onerror=alert(1)>\u202egnp.exe</td><script>alert(2)</script>")
        await expect(page.get_by_role("row").filter(has_text=LONG)).to_be_visible()
        assert await page.locator("main img, main script").count() == 0
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await row.get_by_role("link").first.click()
        await expect(page.locator("h1")).to_contain_text(r"\u202egnp.exe")
        assert await page.locator("main img, main script").count() == 0
        assert dialogs == []


async def test_the_policy_refuses_what_a_script_would_need(scene: Scene, browser: Browser) -> None:
    """Even a bug of ours could not parse HTML, run a script that is not ours, or send anything elsewhere."""
    async with serving(scene.controller, port=0, loop=scene.loop) as url:
        page = await browser.new_page()
        await page.goto(url)
        tried = await page.evaluate(
            """async () => {
              const tries = {};
              try { document.body.innerHTML = "<p>x</p>"; tries.html = "done"; } catch (error) { tries.html = error.name; }
              const script = document.createElement("script");
              script.append("window.ran = true");
              document.head.append(script);
              tries.script = window.ran ?? "refused";
              document.body.setAttribute("style", "color: red");
              tries.style = document.body.style.color || "refused";
              try { await fetch("https://example.com/"); tries.fetch = "done"; } catch (error) { tries.fetch = error.name; }
              return tries;
            }"""
        )
    assert tried == {"html": "TypeError", "script": "refused", "style": "refused", "fetch": "TypeError"}


async def test_a_walk_by_keyboard(scene: Scene, look: Open) -> None:
    waiting(scene)
    async with look(scene, "#/queues") as page:
        await expect(page.locator("tbody tr")).to_have_count(4, timeout=SLOW)
        await page.keyboard.press("2")
        await expect(page.locator("h1")).to_have_text("Waiting")
        await expect(page.locator("tbody tr")).to_have_count(4, timeout=SLOW)
        order = [await focused_after(page, key) for key in ("j", "j", "ArrowDown", "k", "End", "Home")]
        assert order == [await item(page, number) for number in (0, 1, 2, 1, 3, 0)]

        await page.keyboard.press("j")
        here = await page.evaluate("document.activeElement.dataset.item")
        await page.keyboard.press("Enter")
        await expect(page.locator("h2#why")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.locator("h1")).to_have_text("Waiting")
        await expect(page.locator("tbody tr")).to_have_count(4)
        await expect(page.locator(f'[data-item="{here}"]')).to_be_focused()  # where one was

        await page.keyboard.press("/")
        await expect(page.locator("#filter")).to_be_focused()
        await page.keyboard.type("big")
        await expect(page.locator("tbody tr")).to_have_count(1)
        await expect(page).to_have_url(re.compile(r"#/waiting\?q=big$"))
        await page.keyboard.press("ArrowDown")
        assert "big" in await page.evaluate("document.activeElement.dataset.item")
        await page.keyboard.press("Escape")
        await expect(page.locator("tbody tr")).to_have_count(4)

        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_be_hidden()
        await expect(page.locator("h1")).to_have_text("Waiting")


async def focused_after(page: Page, key: str) -> str:
    await page.keyboard.press(key)
    return str(await page.evaluate("document.activeElement.dataset.item"))


async def item(page: Page, number: int) -> str:
    return str(await page.locator("#main [data-item]").nth(number).get_attribute("data-item"))


async def test_one_tab_stop_for_a_list_and_focus_survives_updates(scene: Scene, look: Open) -> None:
    waiting(scene)
    async with look(scene, "#/waiting") as page:
        await expect(page.locator("tbody tr")).to_have_count(4, timeout=SLOW)
        assert await page.locator('#main [data-item][tabindex="0"]').count() == 1
        await page.keyboard.press("End")
        before = await page.evaluate("document.activeElement.dataset.item")
        scene.submit(job("another", "nowhere", 1, 1))
        await expect(page.locator("tbody tr")).to_have_count(5, timeout=SLOW)
        assert await page.evaluate("document.activeElement.dataset.item") == before
        assert await page.locator('#main [data-item][tabindex="0"]').get_attribute("data-item") == before


async def test_the_map_by_keyboard_and_what_it_tells(scene: Scene, look: Open) -> None:
    waiting(scene)
    scene.pod(stranger("exporter", "gpu-0"), "kube-system")
    async with look(scene, "#/nodes") as page:
        nodes = page.locator(".node")
        await expect(nodes).to_have_count(4)
        await expect(page.locator(".block").first).to_contain_text("0 free of 8", timeout=SLOW)
        await page.keyboard.press("ArrowRight")
        await expect(nodes.first).to_be_focused()
        label = await nodes.first.get_attribute("aria-label")
        assert label is not None
        assert label.startswith("gpu-0, 0 of 4 gpu free; ")
        await page.keyboard.press("ArrowRight")
        await expect(page.locator(".panel h2")).to_have_text("gpu-1")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile(r"\?node=gpu-1$"))
        await expect(nodes.nth(1)).to_have_class("node chosen")
        letters = {text for text in await page.locator(".node .tile").all_inner_texts() if text}
        legend = {text for text in await page.locator(".legend .tile").all_inner_texts() if text}
        assert letters == legend == {"Vi", "La"}
        await page.locator(".panel a").first.click()
        await expect(page.locator(".summary")).to_contain_text("runs on 2 nodes")


async def test_a_node_that_cannot_be_used_is_marked(scene: Scene, look: Open) -> None:
    async with look(scene, "#/nodes") as page:
        await expect(page.locator(".node")).to_have_count(4)
        scene.do(lambda world: world.store.patch(NODES, "", "gpu-3", {"spec": {"unschedulable": True}}, ADMIN))
        await expect(page.locator(".node").nth(3)).to_have_class("node unusable", timeout=SLOW)
        await expect(page.locator(".figures")).to_contain_text("4 free on nodes that cannot be used")
        await expect(page.locator(".node").nth(3).locator(".tile.out")).to_have_count(4)


async def test_filters_and_orders_are_in_the_address(scene: Scene, look: Open) -> None:
    waiting(scene)
    async with look(scene, "#/waiting?queue=vision&sort=-pods") as page:
        await expect(page.locator("tbody tr")).to_have_count(2, timeout=SLOW)
        assert [name.strip() for name in await page.locator("tbody .title .name").all_inner_texts()] == ["big", "crew"]
        await expect(page.get_by_role("columnheader", name="Pods")).to_have_attribute("aria-sort", "descending")
        await page.get_by_role("columnheader", name="Pods").get_by_role("link").click()
        await expect(page.locator("tbody tr").first).to_contain_text("crew")
        await page.get_by_role("link", name="queue vision").click()
        await expect(page.locator("tbody tr")).to_have_count(4)
        await page.get_by_role("link", name="NeverFits 1").click()
        await expect(page.locator("tbody tr")).to_have_count(1)
        await page.reload()
        await expect(page.locator("#filter")).to_have_value("NeverFits")
        await expect(page.locator("tbody tr")).to_have_count(1)


async def test_themes(scene: Scene, look: Open) -> None:
    async with look(scene, dark=True) as page:
        background = "getComputedStyle(document.body).backgroundColor"
        assert await page.evaluate(background) == "rgb(16, 19, 23)"
        await page.keyboard.press("t")
        await expect(page.locator("#theme")).to_have_text("Theme: light")
        assert await page.evaluate(background) == "rgb(246, 247, 249)"
        await page.reload()
        assert await page.evaluate(background) == "rgb(246, 247, 249)"
        await page.locator("#theme").click()
        await page.locator("#theme").click()
        await expect(page.locator("#theme")).to_have_text("Theme: system")
        await page.emulate_media(color_scheme="light")
        assert await page.evaluate(background) == "rgb(246, 247, 249)"


async def test_a_phone_shows_it_all(scene: Scene, look: Open) -> None:
    """No page is wider than the screen, and the reason is on it."""
    waiting(scene)
    async with look(scene, "#/waiting", size={"width": 390, "height": 844}) as page:
        await expect(page.get_by_text("NeverFits", exact=True)).to_be_visible(timeout=SLOW)
        for hash_ in ("#/queues", "#/waiting", "#/gangs", "#/nodes", "#/gangs/ml/big", "#/gangs/ml/train"):
            await page.evaluate(f"location.hash = '{hash_}'")
            await expect(page.locator(".body[aria-busy]")).to_have_count(0)
            await expect(page.locator("main .loading")).to_have_count(0)
            assert await page.evaluate("document.documentElement.scrollWidth") <= 390, hash_


async def test_what_is_empty_missing_or_held_says_so(scene: Scene, look: Open) -> None:
    scene.do(lambda world: world.store.create(QUEUES, "", queue("paused", state="Held"), ADMIN))
    scene.submit(job("train", "vision", 2, 4))
    async with look(scene, "#/waiting") as page:
        await expect(page.locator("main .empty")).to_contain_text("Nothing waits.")
        await page.evaluate("location.hash = '#/queues'")
        row = page.get_by_role("row").filter(has_text="paused")
        await expect(row).to_contain_text(
            "QueueHeld queue paused is held. To change that, set the queue's state to Open."
        )
        await page.evaluate("location.hash = '#/gangs/ml/trian'")
        await expect(page.locator("main .empty")).to_contain_text('gang "trian" not found in namespace "ml"')
        await page.locator("main .near a").first.click()
        await expect(page.locator("h1")).to_contain_text("train")
        await page.evaluate("location.hash = '#/gangs?q=nothing-like-it'")
        await expect(page.locator("main .empty")).to_contain_text("No gang fits.")
        await page.evaluate("location.hash = '#/somewhere'")
        await expect(page.locator("main .empty")).to_contain_text("There is no such page.")


async def test_standing_by_and_cut_off_are_said(scene: Scene, look: Open) -> None:
    async with look(scene) as page:
        await expect(page.locator("#link")).to_have_text("leading")

        def stand_by(_: object) -> None:
            scene.controller.leading = False
            scene.controller.leadership.holder = "controller-2"

        scene.do(stand_by)
        await expect(page.locator("#link")).to_have_text("standing by", timeout=SLOW)
        await expect(page.locator("#banner")).to_contain_text("This controller stands by; controller-2 leads.")

        def cut_off(_: object) -> None:
            scene.controller.informers[0].lost_at = scene.controller.clock.monotonic() - 100

        scene.do(cut_off)
        await expect(page.locator("#banner")).to_contain_text(
            "has heard nothing from the API server for 1", timeout=SLOW
        )
        await expect(page.locator("main")).to_have_class("stale")


async def test_before_anything_was_read_it_says_what_is_missing(scene: Scene, look: Open) -> None:
    pods = next(informer for informer in scene.controller.informers if informer.kind.plural == "pods")
    scene.do(lambda _: pods.synced.clear())
    async with look(scene, "#/gangs") as page:
        await expect(page.locator("main .error")).to_contain_text(
            "the controller has not read the cluster yet: no pods"
        )
        await expect(page.locator("#banner")).to_contain_text("Not ready (leading): pods not synced.")
        scene.do(lambda _: pods.synced.set())
        await expect(page.locator("main .empty")).to_contain_text("There is no gang yet.", timeout=SLOW)
        await expect(page.locator("#banner")).to_be_empty()


async def test_what_is_used_can_be_seen_however_much_is_waited_for(scene: Scene, look: Open) -> None:
    """A queue without a limit, asked for a hundred times what there is: half of its bar is what it uses."""
    scene.submit(job("train", "production", 1, 4))
    scene.do(lambda world: world.store.patch(QUEUES, "", "production", {"spec": {"resources": None}}, ADMIN))
    scene.until(lambda world: len(running(world)) == 1)
    for number in range(10):
        scene.submit(job(f"more-{number}", "production", 10, 4))
    async with look(scene) as page:
        row = page.get_by_role("row").filter(has_text="production")
        bar = row.get_by_role("img")
        await expect(bar).to_have_attribute(
            "aria-label", re.compile("4 used, no quota, no limit, 400 waited for"), timeout=SLOW
        )
        await expect(bar.locator(".segment.own")).to_have_attribute("style", re.compile(r"width: 50%"))
        await expect(bar.locator(".more")).to_have_attribute("title", "more is waited for than is drawn")


async def test_a_long_name_pushes_no_number_off_the_page(scene: Scene, look: Open) -> None:
    """It is cut, and whole in its title."""
    name = "q-" + "a" * 61
    scene.do(lambda world: world.store.create(QUEUES, "", queue(name, "research", quota=4), ADMIN))
    async with look(scene) as page:
        link = page.get_by_role("link", name=name)
        await expect(link).to_have_attribute("title", name, timeout=SLOW)
        assert await page.locator(".scroll").evaluate("element => element.scrollWidth - element.clientWidth") <= 0
        await expect(page.get_by_role("columnheader", name="Running")).to_be_in_viewport()
