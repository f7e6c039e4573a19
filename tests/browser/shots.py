"""Pictures of every page for the documentation: ``python -m tests.browser.shots [FOLDER]``.

A cluster of six racks with something of everything: full and half-full queues, borrowing, gangs that wait for ten reasons.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

from playwright.async_api import Browser, Page, ViewportSize, async_playwright, expect

from queuectl.contract.foreign import NODES
from queuectl.serve.app import serving
from tests.browser.scene import ADMIN, Scene, job, node, queue, running, stranger

FOLDER = Path(__file__).parents[2] / "docs" / "img"
WIDE: ViewportSize = {"width": 1280, "height": 800}
NARROW: ViewportSize = {"width": 390, "height": 844}
RACKS, NODES_A_RACK, GPUS = 6, 4, 8

RUNNING = [
    # name, queue, pods, GPUs a pod, level
    ("llm-pretrain", "language", 4, 8, "rack"), ("llm-eval", "language", 2, 8, "rack"), ("rlhf-ppo", "language", 4, 4, "rack"),
    ("detr-large", "vision", 2, 8, "rack"), ("segment-v3", "vision", 4, 4, "rack"), ("depth-sweep", "vision", 4, 2, ""),
    ("ranker-daily", "search", 3, 8, "rack"), ("embeddings", "search", 4, 2, ""), ("click-model", "ads", 2, 4, ""),
    ("notebook-ana", "ads", 1, 1, ""), ("dedup", "search", 1, 4, ""), ("tokenize", "language", 4, 1, ""),
]  # fmt: skip
WAITING = [
    ("llm-70b", "language", 4, 8, "rack"), ("moe-128", "language", 16, 8, "rack"), ("distill-7b", "language", 2, 8, "rack"),
    ("pose-track", "vision", 4, 8, "rack"), ("vit-giant", "vision", 8, 8, ""), ("ctr-refresh", "ads", 4, 8, ""),
    ("bid-sim", "ads", 2, 8, ""), ("ranker-next", "search", 4, 8, "rack"), ("typo-queue", "serach", 1, 1, ""),
]  # fmt: skip


def cluster() -> Scene:
    """Six racks of four nodes with eight GPUs each."""
    nodes = [node(f"gpu-{rack}{place}", GPUS, f"rack-{rack}") for rack in range(RACKS) for place in range(NODES_A_RACK)]
    queues = [
        queue("research", quota=96, weight=2),
        queue("language", "research", quota=64, limit=112),
        queue("vision", "research", quota=48),
        queue("product", quota=72, limit=96),
        queue("search", "product", quota=48, limit=64),
        queue("ads", "product", quota=24, limit=32),
        queue("interns", "product", quota=0, limit=8, state="Held"),
    ]
    return Scene(nodes, queues, speed=20.0)


def fill(scene: Scene) -> None:
    """Gangs that run, then gangs that wait, a while apart."""
    for number in range(RACKS * NODES_A_RACK):
        on = f"gpu-{number // NODES_A_RACK}{number % NODES_A_RACK}"
        scene.pod(stranger(f"exporter-{number}", on), "kube-system")
    scene.pod(stranger("render", "gpu-52", 2), "kube-system")
    scene.do(lambda world: world.store.patch(NODES, "", "gpu-53", {"spec": {"unschedulable": True}}, ADMIN))
    for name, of, pods, gpus, level in RUNNING:
        scene.submit(job(name, of, pods, gpus, level=level), of)
    scene.until(lambda world: len(running(world)) >= sum(pods for _, _, pods, _, _ in RUNNING))
    for name, of, pods, gpus, level in WAITING:
        scene.submit(job(name, of, pods, gpus, level=level), of)
        pause(scene, 200.0)
    scene.submit(job("trial", "interns", 1, 1), "interns")
    scene.group("crew", "vision", queue="vision", minMember=4, hold=True)
    pause(scene, 400.0)


def pause(scene: Scene, seconds: float) -> None:
    """So much of the cluster's time, as fast as it goes."""
    scene.faster(2000.0)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(seconds), scene.loop).result(60)
    scene.faster(20.0)


async def shoot(browser: Browser, url: str, folder: Path) -> None:
    """Every page, light, dark and narrow."""
    pages = {
        "queues": "#/queues",
        "waiting": "#/waiting",
        "gang": "#/gangs/language/llm-70b",
        "running": "#/gangs/language/llm-pretrain",
        "gangs": "#/gangs",
        "nodes": "#/nodes?node=gpu-30",
    }
    for kind, size, dark in (("", WIDE, False), ("-dark", WIDE, True), ("-narrow", NARROW, False)):
        context = await browser.new_context(
            viewport=size, color_scheme="dark" if dark else "light", device_scale_factor=1
        )
        page = await context.new_page()
        for name, hash_ in pages.items():
            await page.goto("about:blank")
            await page.goto(f"{url}/{hash_}")
            await settled(page)
            await page.screenshot(path=folder / f"{name}{kind}.png", full_page=kind == "-narrow" and name != "nodes")
        await context.close()


async def settled(page: Page) -> None:
    """Everything is on the page."""
    await expect(page.locator("#link")).to_have_text("leading")
    await expect(page.locator(".body[aria-busy]")).to_have_count(0)
    await expect(page.locator("main table, main .map").first).to_be_visible()
    await page.evaluate("document.activeElement.blur()")


async def main(folder: Path) -> None:
    """Take all pictures."""
    chromium = shutil.which("chromium")
    assert chromium is not None, "Chromium is not installed"
    with cluster() as scene:
        await asyncio.to_thread(fill, scene)
        async with serving(scene.controller, port=0, loop=scene.loop) as url, async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            await shoot(browser, url, folder)
            await browser.close()


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(target))
