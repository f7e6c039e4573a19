"""Asks the controller's JSON API. Standard library only: a listing should not wait for an HTTP framework to load."""

from __future__ import annotations

import http.client
import ipaddress
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from queuectl.cli.problems import Problem, Usage
from queuectl.cli.text import plain
from queuectl.contract.home import NAMESPACE
from queuectl.serve.words import HOST, PORT, PREFIX

DEFAULT = f"http://{HOST}:{PORT}"
SECONDS = 10.0  # for one answer; the largest take well under one second
Json = dict[str, Any]

_ADVICE = (
    "The controller serves on loopback. When it runs in the cluster:\n"
    f"  kubectl -n {NAMESPACE} port-forward POD {PORT}:{PORT}\n"
    "When it listens elsewhere: --server URL, or set QUEUECTL_SERVER."
)


class NotFound(Problem):
    """There is no such object."""


class Server:
    """One controller's API."""

    def __init__(self, url: str) -> None:
        """Raises Usage when ``url`` is not an http(s) URL."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as problem:
            raise Usage(f"--server {url}: {problem}") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
            raise Usage(f"--server {url}: must be a URL such as {DEFAULT}")
        self.url = url.rstrip("/")
        # A proxy is for the world outside; what is on this machine is asked directly.
        proxies: dict[str, str] | None = {} if _loopback(parts.hostname) else None
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))

    def get(self, *path: str, **query: str) -> Json:
        """The object at ``path`` (its parts, unquoted). Raises NotFound or another Problem."""
        address = "/".join([self.url + PREFIX, *(quote(part, safe="") for part in path)])
        if asked := {key: value for key, value in query.items() if value}:
            address += "?" + urlencode(asked)
        try:
            with self._opener.open(address, timeout=SECONDS) as response:
                return self._object(response.status, response.read())
        except urllib.error.HTTPError as refusal:
            with refusal:
                found = self._object(refusal.code, refusal.read())
            nearest = ((found.get("details") or {}).get("nearest")) or []
            advice = f"nearest: {', '.join(map(plain, nearest))}" if nearest else ""
            kind = NotFound if refusal.code == 404 else Problem
            raise kind(str(found.get("message", f"HTTP {refusal.code}")), advice) from None
        except (OSError, http.client.HTTPException) as trouble:
            reason = getattr(trouble, "reason", trouble)
            words = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
            raise Problem(f"cannot reach the controller at {self.url}: {words}", _ADVICE) from None

    def _object(self, code: int, body: bytes) -> Json:
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        if not isinstance(found, dict) or "kind" not in found:
            message = f"{self.url} does not answer as a queuectl controller does (HTTP {code})"
            raise Problem(message, "Is another program listening there? --server URL names the right one.")
        return found


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
