"""The dashboard's files, as a browser gets them."""

from __future__ import annotations

import re

import pytest
from aiohttp import ClientSession
from yarl import URL

from queuectl.serve.app import serving
from queuectl.serve.pages import FOLDER, INDEX, POLICY
from tests.serve.standin import Standin, story
from tests.serve.test_api import asking

FILES = sorted(path.name for path in FOLDER.iterdir() if path.name != INDEX)


async def test_the_page_may_load_its_own_files_and_nothing_else() -> None:
    async with asking(Standin()) as client, client.get("/") as reply:
        assert (reply.status, reply.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert reply.headers["Content-Security-Policy"] == POLICY
        assert "unsafe" not in POLICY
        assert (reply.headers["Cache-Control"], reply.headers["X-Content-Type-Options"]) == ("no-store", "nosniff")
        assert reply.headers["Referrer-Policy"] == "no-referrer"
        text = await reply.text()
    assert re.findall(r"<script(?![^>]*src=)|<style|\son[a-z]+=|\sstyle=|javascript:", text) == []
    named = re.findall(r'(?:src|href)="([^"#]+)"', text)
    assert {name.removeprefix("dashboard/") for name in named} <= set(FILES)  # relative: also below a proxy's path


@pytest.mark.parametrize("name", FILES)
async def test_every_file_is_served_with_its_type(name: str) -> None:
    kinds = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    async with asking(Standin()) as client, client.get(f"/dashboard/{name}") as reply:
        assert reply.status == 200
        assert reply.headers["Content-Type"] == f"{kinds[(FOLDER / name).suffix]}; charset=utf-8"
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert await reply.read() == (FOLDER / name).read_bytes()


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_no_script_parses_html_or_reads_the_browsers_clock(name: str) -> None:
    """Text is only ever text, and ages are the controller's."""
    source = (FOLDER / name).read_text()
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", source) == []
    assert re.findall(r"Date\.now|new Date\(\)", source) == []
    assert len(source.splitlines()) <= 350
    imports = re.findall(r'from "\./([a-z]+\.js)"', source)
    assert set(imports) <= set(FILES)


@pytest.mark.parametrize(
    "path", ["/dashboard/", "/dashboard/nothing.js", "/dashboard/index.html", "/dashboard/%2e%2e/app.py"]
)
async def test_there_is_nothing_else(path: str) -> None:
    async with (
        serving(story().controller, port=0) as url,
        ClientSession() as session,
        session.get(URL(f"{url}{path}", encoded=True)) as reply,
    ):
        assert (reply.status, (await reply.json())["kind"]) == (404, "Status")


async def test_the_page_is_read_only_and_for_us_only() -> None:
    async with asking(Standin()) as client:
        async with client.post("/") as reply:
            assert reply.status == 405
        async with client.get("/", headers={"Host": "evil.example"}) as reply:
            assert (reply.status, reply.headers["Content-Type"]) == (403, "application/json")
