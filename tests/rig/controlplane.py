"""The control plane: etcd, kube-apiserver, kube-scheduler and kube-controller-manager, started and ended by the tests.

Everything listens on 127.0.0.1 at ports chosen per start, speaks TLS with certificates of one CA (etcd excepted: plain
HTTP on loopback), authorizes by RBAC and writes an audit log (see :mod:`tests.rig.audit`). There is no kubelet and no
network between pods: :mod:`tests.rig.kubelet` plays the nodes.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from tests.rig import build
from tests.rig.pki import Pki
from tests.rig.process import Folder, Process, RigError

ADMIN_GROUPS = ("system:masters",)  # bound to everything, and exempt from priority and fairness
READY_SECONDS = 60.0  # per program; 2 to 5 s when idle, but both cores may be compiling something
POLL_SECONDS = 0.05  # between two questions for readiness: small beside a start, and cheap

# What the tests need: workloads, garbage collection, namespaces with their service account, budgets, node loss.
# The aggregation controller fills the built-in roles `edit` and `admin`, which are empty without it.
CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "garbage-collector-controller",
    "pod-garbage-collector-controller",
    "job-controller",
    "replicaset-controller",
    "deployment-controller",
    "statefulset-controller",
    "node-lifecycle-controller",
    "taint-eviction-controller",
    "disruption-controller",
    "ttl-after-finished-controller",
    "resourceclaim-controller",
    "validatingadmissionpolicy-status-controller",
    "root-ca-certificate-publisher-controller",
)

_WRITES = ["create", "update", "patch", "delete", "deletecollection"]
# The first rule that matches decides. Node leases come first, for they are most of the traffic and prove nothing.
# Writes are kept whole, because the ground truth (who removed which gate, in which order) is read from them; reads
# only by who and what, to count lists and watches.
AUDIT_POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "None",
            "namespaces": ["kube-node-lease"],
            "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}],
        },
        {
            "level": "RequestResponse",
            "verbs": _WRITES,
            "resources": [
                {"group": "", "resources": ["pods", "pods/binding", "pods/eviction", "pods/status"]},
                {"group": "batch", "resources": ["jobs", "jobs/status"]},
                {"group": "coordination.k8s.io", "resources": ["leases"]},
                {"group": "queuectl.io"},
            ],
        },
        # Each namespace that goes away is searched for objects of every kind: some 60 lists, which say nothing.
        {
            "level": "None",
            "verbs": ["list", "watch", "get"],
            "users": ["system:apiserver", "system:serviceaccount:kube-system:namespace-controller"],
        },
        {"level": "Metadata", "verbs": ["list", "watch"]},
        {
            "level": "Metadata",
            "verbs": ["get"],
            "resources": [
                {"group": "", "resources": ["pods", "nodes", "namespaces"]},
                {"group": "batch", "resources": ["jobs"]},
                {"group": "coordination.k8s.io", "resources": ["leases"]},
                {"group": "queuectl.io"},
            ],
        },
        {"level": "None"},
    ],
}


def free_port() -> int:
    """A port on loopback that is free now.

    Below 32768, where Linux begins to give ports to outgoing connections, so that none of the many connections of the
    control plane itself takes it between now and the start of the server.
    """
    for _ in range(100):
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RigError("no free port between 20000 and 32000 on 127.0.0.1")


class ControlPlane:
    """One control plane. Use :meth:`start` and :meth:`stop`, or a ``with`` block; not safe for several threads.

    ``node_grace`` is how many seconds a node may be silent before it is tainted; a fake kubelet's heartbeat must be a
    fraction of it. ``native`` switches on the native PodGroups (scheduling.k8s.io/v1beta1).
    """

    def __init__(self, *, node_grace: float = 8.0, native: bool = False, binaries: Path | None = None) -> None:
        self.node_grace = node_grace
        self.native = native
        self._binaries = binaries
        self._processes: dict[str, Process] = {}
        self._readiness: dict[str, str] = {}  # URL that says when a program is ready
        self._folders: list[Folder] = []
        self._tls: ssl.SSLContext | None = None
        self.start_seconds = 0.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, folder: Path | None = None) -> None:
        """Start the four programs and wait until all are ready. Raises RigError with the log of the one that is not.

        ``folder`` keeps certificates, kubeconfigs, logs and the audit log, and stays; without it a temporary folder is
        made and removed at the end. etcd's data is always temporary, in /dev/shm where there is one.
        """
        began = time.monotonic()
        binaries = self._binaries or build.binaries()
        if binaries is None:
            raise RigError("the control plane is not built: run python -m tests.rig.build")
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="queuectl-rig-"))
            self._folders.append(Folder(folder))
        folder.mkdir(parents=True, exist_ok=True)
        memory = Path("/dev/shm")
        data = Path(tempfile.mkdtemp(prefix="queuectl-etcd-", dir=memory if memory.is_dir() else None))
        self._folders.append(Folder(data))
        self.folder = folder.resolve()
        self.audit_path = self.folder / "audit.log"
        self.pki = Pki(self.folder / "pki")
        self.port = free_port()
        self.server = f"https://127.0.0.1:{self.port}"
        admin = self.pki.client("admin", ADMIN_GROUPS)
        self._tls = ssl.create_default_context(cafile=self.pki.ca_file)
        self._tls.load_cert_chain(admin.certificate, admin.key)
        self.admin_kubeconfig = self.kubeconfig("admin", ADMIN_GROUPS).rename(self.folder / "admin.kubeconfig")
        try:
            self._start(binaries, data)
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.monotonic() - began

    def _start(self, binaries: Path, data: Path) -> None:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        etcd = self.spawn(
            "etcd",
            [
                binaries / "etcd",
                *("--data-dir", data),
                "--unsafe-no-fsync",  # nothing of the rig outlives a crash of the machine
                *("--listen-client-urls", client, "--advertise-client-urls", client),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                *("--initial-cluster", f"default={peer}"),
                *("--quota-backend-bytes", str(8 << 30)),  # thousands of pods with history must not end in NOSPACE
                *("--log-level", "warn"),
            ],
        )
        self._ready(etcd, f"{client}/health")
        gates = ["--feature-gates=GenericWorkload=true"] if self.native else []
        serving: list[str | Path] = [
            *("--bind-address", "127.0.0.1"),
            *("--tls-cert-file", self.pki.serving.certificate, "--tls-private-key-file", self.pki.serving.key),
            *gates,
        ]
        policy = self.folder / "audit-policy.json"
        policy.write_text(json.dumps(AUDIT_POLICY))
        apiserver = self.spawn(
            "kube-apiserver",
            [
                binaries / "kube-apiserver",
                *("--etcd-servers", client),
                *("--secure-port", str(self.port)),
                # Without the next two it looks for a default route and for peers, which loopback does not have.
                *("--advertise-address", "127.0.0.1", "--endpoint-reconciler-type", "none"),
                *("--client-ca-file", self.pki.ca_file, "--authorization-mode", "RBAC"),
                *("--service-account-issuer", "https://kubernetes.default.svc"),
                *("--service-account-key-file", self.pki.service_account_public),
                *("--service-account-signing-key-file", self.pki.service_account_key),
                *("--service-cluster-ip-range", "10.0.0.0/24", "--allow-privileged"),
                *("--audit-policy-file", policy, "--audit-log-path", self.audit_path),
                # Written before the request ends, and in one file: the default size of 100 MB would rotate it away.
                *("--audit-log-mode", "blocking", "--audit-log-maxsize", "100000"),
                *("--max-requests-inflight", "2000", "--max-mutating-requests-inflight", "1000"),
                *serving,
                *(["--runtime-config=scheduling.k8s.io/v1beta1=true"] if self.native else []),
            ],
        )
        self._ready(apiserver, f"{self.server}/readyz")  # not /healthz: the built-in roles are written after that
        self._until("namespace default", lambda: self.request("GET", "/api/v1/namespaces/default")[0] == 200, apiserver)

        probes = "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics"
        ports = free_port(), free_port()
        configuration = self.folder / "scheduler.json"
        configuration.write_text(
            json.dumps(
                {
                    "apiVersion": "kubescheduler.config.k8s.io/v1",
                    "kind": "KubeSchedulerConfiguration",
                    # The default of 50 requests a second would hold binding to about 50 pods a second.
                    "clientConnection": {
                        "kubeconfig": str(self.kubeconfig("system:kube-scheduler")),
                        "qps": 2000,
                        "burst": 4000,
                    },
                    "leaderElection": {"leaderElect": False},
                    "podInitialBackoffSeconds": 1,  # the smallest there are: a test waits for the retry
                    "podMaxBackoffSeconds": 2,
                }
            )
        )
        scheduler = self.spawn(
            "kube-scheduler",
            [binaries / "kube-scheduler", "--config", configuration, "--secure-port", str(ports[0]), probes, *serving],
        )
        manager = self.kubeconfig("system:kube-controller-manager")
        controllers = self.spawn(
            "kube-controller-manager",
            [
                binaries / "kube-controller-manager",
                *("--kubeconfig", manager, "--authentication-kubeconfig", manager),
                *("--authorization-kubeconfig", manager),
                *("--secure-port", str(ports[1]), probes),
                *("--service-account-private-key-file", self.pki.service_account_key),
                *("--root-ca-file", self.pki.ca_file),
                *("--use-service-account-credentials", "--leader-elect=false"),
                *("--kube-api-qps", "1000", "--kube-api-burst", "2000"),
                *("--controllers", ",".join(CONTROLLERS)),
                *("--node-monitor-period", "1s", "--node-monitor-grace-period", f"{self.node_grace:g}s"),
                *serving,
            ],
        )
        self._ready(scheduler, f"https://127.0.0.1:{ports[0]}/healthz")
        self._ready(controllers, f"https://127.0.0.1:{ports[1]}/healthz")

    def stop(self) -> float:
        """End everything that was started here, in reverse order, and remove temporary folders. Returns the seconds."""
        began = time.monotonic()
        processes = list(self._processes.values())[::-1]
        for process in processes:
            # etcd goes last and alone: an API server that lost it would spend its time on retries.
            if process.name != "etcd":
                process.terminate()
        for process in processes:
            process.stop()
        self._processes.clear()
        for folder in self._folders:
            folder.remove()
        self._folders.clear()
        return time.monotonic() - began

    def spawn(self, name: str, argv: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> Process:
        """Start a further program (a controller under test, say) with its log in our folder; it ends when we stop.

        A name can be used again once its process has ended; else RigError.
        """
        if name in self._processes and self._processes[name].returncode is None:
            raise RigError(f"{name} is running already (process {self._processes[name].pid})")
        process = Process(name, argv, self.folder / "logs" / f"{name}.log", environment)
        self._processes[name] = process
        return process

    def process(self, name: str) -> Process:
        """The process of that name (``etcd``, ``kube-apiserver`` …, or one that was spawned). Raises KeyError."""
        return self._processes[name]

    @property
    def processes(self) -> list[Process]:
        """All of them that live."""
        return [process for process in self._processes.values() if process.returncode is None]

    def restart(self, name: str) -> float:
        """End one of the four programs and start it again as it was (etcd with its data); seconds until it is ready.

        Watches of the API server are cut by it, and its clients are refused meanwhile. It blocks: call it in a thread
        (asyncio.to_thread) where a fake kubelet runs in the same event loop.
        """
        began = time.monotonic()
        old = self._processes[name]
        old.stop(1.0)  # the API server would wait for its watches to end, which the others' never do
        self._processes[name] = process = old.again()
        self._ready(process, self._readiness[name])
        return time.monotonic() - began

    def check(self) -> None:
        """Raise RigError, with the end of its log, when one of the four programs has died."""
        for name in build.PROGRAMS:
            if self._processes[name].returncode is not None:
                raise self._processes[name].failure("died")

    def kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """Kubeconfig of any user in any groups; what they may do is for RBAC to say (see :meth:`grant`)."""
        return self.pki.kubeconfig(self.server, user, groups)

    def tenant(self, namespace: str, user: str) -> Path:
        """Kubeconfig of a user who holds the built-in role ``edit`` in that namespace, and nothing else."""
        self.grant(user, "edit", namespace)
        attributes = {"namespace": namespace, "verb": "create", "group": "batch", "resource": "jobs"}
        review = {"spec": {"user": user, "resourceAttributes": attributes}}

        def allowed() -> bool:
            body = self.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)[1]
            return bool(body["status"]["allowed"])

        self._until(f"the rights of {user}", allowed, self._processes["kube-apiserver"])
        return self.kubeconfig(user)

    def grant(self, user: str, cluster_role: str, namespace: str | None = None) -> None:
        """Bind a ClusterRole to a user, in one namespace or (None) everywhere. Granting again is no error."""
        where = f"/namespaces/{namespace}/rolebindings" if namespace else "/clusterrolebindings"
        binding = {
            "metadata": {"name": f"rig:{user}:{cluster_role}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": cluster_role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }
        self._create(f"/apis/rbac.authorization.k8s.io/v1{where}", binding)

    def namespace(self, name: str, *, labels: Mapping[str, str] | None = None, seconds: float = 30.0) -> str:
        """Create a namespace and wait for its default service account, without which no pod is accepted (about 1 s)."""
        self._create("/api/v1/namespaces", {"metadata": {"name": name, "labels": dict(labels or {})}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        self._until(
            f"service account of namespace {name}",
            lambda: self.request("GET", account)[0] == 200,
            self._processes["kube-controller-manager"],
            seconds,
        )
        return name

    def request(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json"
    ) -> tuple[int, Any]:
        """One blocking request as the administrator: (status, decoded body). For set-up; tests use rig.client.

        Raises OSError when the API server cannot be reached.
        """
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=self._tls)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": content_type, "Accept": "application/json"})
            reply = connection.getresponse()
            content = reply.read()
        finally:
            connection.close()
        try:
            return reply.status, json.loads(content)
        except ValueError:
            return reply.status, content.decode(errors="replace")

    def _create(self, path: str, body: object) -> None:
        status, reply = self.request("POST", path, body)
        if status not in {201, 409}:
            raise RigError(f"POST {path}: {status} {reply}")

    def _ready(self, process: Process, url: str) -> None:
        self._readiness[process.name] = url
        parts = urlsplit(url)

        def answers() -> bool:
            if parts.scheme == "https":
                connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                    parts.netloc, timeout=5, context=self._tls
                )
            else:
                connection = http.client.HTTPConnection(parts.netloc, timeout=5)
            try:
                connection.request("GET", parts.path)
                return connection.getresponse().status == 200
            finally:
                connection.close()

        self._until(url, answers, process)

    @staticmethod
    def _until(what: str, ready: Callable[[], bool], process: Process, seconds: float = READY_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        last: object = "no answer yet"
        while time.monotonic() < deadline:
            if process.returncode is not None:
                raise process.failure(f"died before {what} was ready")
            try:
                if ready():
                    return
                last = "answers, but is not ready"
            except (OSError, http.client.HTTPException) as error:
                last = error
            time.sleep(POLL_SECONDS)
        raise process.failure(f"{what} was not ready within {seconds:g} s: {last}")
