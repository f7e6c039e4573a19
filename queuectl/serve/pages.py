"""The dashboard's files: read once, served as they are. Which paths exist is decided by the folder, not by the request."""

from __future__ import annotations

from pathlib import Path

from aiohttp import hdrs, web

from queuectl.serve.api import Handler

FOLDER = Path(__file__).parent / "dashboard"
INDEX = "index.html"
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
# Nothing inline, nothing from elsewhere, and no text is ever parsed as HTML: not by ours, not by anybody's script.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


def routes() -> list[tuple[str, Handler]]:
    """``/`` and one path for each file."""
    found = {path.name: path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.suffix in TYPES}
    files = [(f"/dashboard/{name}", _file(name, body)) for name, body in found.items() if name != INDEX]
    return [("/", _file(INDEX, found[INDEX])), *files]


def _file(name: str, body: bytes) -> Handler:
    headers: dict[str, str] = {hdrs.CONTENT_TYPE: f"{TYPES[Path(name).suffix]}; charset=utf-8"}
    if name == INDEX:
        headers["Content-Security-Policy"] = POLICY
        headers["Referrer-Policy"] = "no-referrer"

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, headers=headers)

    return answer
