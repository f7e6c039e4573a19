"""Where the API server is and who we are: a kubeconfig file, or the service account of the pod we run in.

kubernetes_asyncio reads the files (merging, exec plugins, OIDC, GCP); what it found is kept here as one header and one
TLS context. The context is changed in place when certificates change, so that connectors made from it follow.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config

TOKEN_SECONDS = 60.0  # client-go re-reads token files each minute too; the kubelet rotates them at 80 % of an hour
DEFAULT_KUBECONFIG = Path.home() / ".kube" / "config"

_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
# All that the loader is known to raise on bad input: it indexes and asserts where it should validate.
_BAD_INPUT = (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError, AssertionError)


class ConfigurationProblem(Exception):
    """We do not know how to reach the cluster, or as whom. ``advice`` says what the user can do about it."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(f"{message}. {advice}")
        self.message = message
        self.advice = advice


class Credentials:
    """The server's URL, a TLS context and an Authorization header that is kept fresh.

    Not safe for several event loops. Reading costs a few milliseconds of blocking file access, once a minute at most.
    """

    def __init__(self, source: str, context: str | None) -> None:
        """``source`` is what ``load`` resolved: kubeconfig paths joined by ``os.pathsep``, or empty for in-cluster."""
        self.source = source
        self.context = context
        self.server = ""
        self.proxy: str | None = None
        self.server_name: str | None = None
        self.tls: ssl.SSLContext | None = None
        self._authorization = ""
        self._loader: Any = None
        self._check_at = 0.0
        self.certificates: tuple[object, ...] = ()  # changes when a new connection would be another than the old ones
        self._lock = asyncio.Lock()

    @classmethod
    async def load(cls, kubeconfig: str | Path | None = None, context: str | None = None) -> Self:
        """Read a kubeconfig: the given path, else ``$KUBECONFIG``, else ``~/.kube/config``, else the pod's own account.

        Raises ConfigurationProblem.
        """
        found = cls(_source(kubeconfig), context)
        await found._read()
        return found

    async def authorization(self) -> str:
        """The Authorization header, empty when certificates speak for us. Re-read once a minute if it may change."""
        if time.monotonic() >= self._check_at:
            async with self._lock:
                if time.monotonic() >= self._check_at:
                    await self._refresh()
        return self._authorization

    async def renew(self, refused: str) -> bool:
        """Read everything anew because the server answered 401 to ``refused``; whether trying again makes sense.

        Any number of requests may ask at once: the files are read, or the plugin run, once.
        """
        async with self._lock:
            if self._authorization == refused:
                before = self.certificates
                try:
                    await self._read()
                except ConfigurationProblem:
                    return False
                return self._authorization != refused or self.certificates != before
        return True

    async def _refresh(self) -> None:
        """Once a minute: follow rotated files and expired plugin answers; keep the old ones when that fails."""
        self._check_at = time.monotonic() + TOKEN_SECONDS
        try:
            if self._loader is None:
                await self._read()
            elif hasattr(self._loader, "exec_plugin_expiry"):
                await self._loader.load_from_exec_plugin()  # runs the plugin only when its answer is about to expire
                self._authorization = self._loader.token
            elif _rotating(self._loader):
                await self._read()
        except (ConfigurationProblem, *_BAD_INPUT):
            return  # the server will say 401 when it matters

    async def _read(self) -> None:
        configuration = Configuration()
        where = self.source or "the pod's service account"
        try:
            if self.source:
                self._loader = await load_kube_config(self.source, self.context, configuration, persist_config=False)
            else:
                load_incluster_config(configuration, try_refresh_token=False)  # type: ignore[no-untyped-call]  # the library has no annotations
            if urlsplit(configuration.host).scheme == "https":
                self._trust(configuration)
        except ssl.SSLError as error:
            raise ConfigurationProblem(f"{where}: bad certificate or key: {error}", "Renew the credentials") from error
        except _BAD_INPUT as error:
            raise ConfigurationProblem(
                f"{where} cannot be used: {str(error).strip() or type(error).__name__}",
                "Check it with `kubectl config view`, or name another with --kubeconfig and --context",
            ) from error
        host = configuration.host or ""
        if not urlsplit(host).hostname:
            raise ConfigurationProblem(f"{where}: no usable server URL: {host!r}", "Set clusters[].cluster.server")
        self.server = host.rstrip("/")
        self.proxy = configuration.proxy
        self.server_name = configuration.tls_server_name
        self._authorization = str(configuration.api_key.get("BearerToken", "")).strip()
        self._check_at = time.monotonic() + TOKEN_SECONDS

    def _trust(self, configuration: Any) -> None:
        """Build the TLS context, or add to it what has changed on disk since."""
        files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
        state = tuple((name, os.stat(name).st_mtime_ns) for name in files if name)
        if self.tls is None:
            self.tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
            # From Python 3.13 on, strict checking refuses certificates that Kubernetes distributions really use.
            self.tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        elif state != self.certificates and configuration.ssl_ca_cert:
            self.tls.load_verify_locations(configuration.ssl_ca_cert)
        if configuration.cert_file and state != self.certificates:
            self.tls.load_cert_chain(configuration.cert_file, configuration.key_file)
        if not configuration.verify_ssl:
            self.tls.check_hostname = False
            self.tls.verify_mode = ssl.CERT_NONE
        self.certificates = state


def _source(kubeconfig: str | Path | None) -> str:
    """The kubeconfig path(s) to read, or empty for in-cluster."""
    named = str(kubeconfig) if kubeconfig is not None else os.environ.get("KUBECONFIG", "")
    if named:
        paths = [Path(part).expanduser() for part in named.split(os.pathsep) if part]
        if not any(path.is_file() for path in paths):
            origin = "" if kubeconfig is not None else " (from $KUBECONFIG)"
            raise ConfigurationProblem(f"no kubeconfig file {named}{origin}", "Give its path with --kubeconfig")
        return os.pathsep.join(str(path) for path in paths)
    if DEFAULT_KUBECONFIG.is_file():
        return str(DEFAULT_KUBECONFIG)
    if os.environ.get(_IN_CLUSTER):
        return ""
    raise ConfigurationProblem(
        f"no kubeconfig: {DEFAULT_KUBECONFIG} does not exist, $KUBECONFIG is not set, and this is not a pod",
        "Give its path with --kubeconfig",
    )


def _rotating(loader: Any) -> bool:
    """Whether the kubeconfig's user names a token or certificate by file, which somebody may rotate."""
    user = getattr(loader, "_user", None)
    return user is not None and ("tokenFile" in user or "client-certificate" in user)
