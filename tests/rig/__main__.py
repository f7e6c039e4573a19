"""``python -m tests.rig`` (``make rig``): a control plane with four fake nodes to try things on, until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence

from tests.rig import build
from tests.rig.apply import apply, product_crds
from tests.rig.client import Api
from tests.rig.controlplane import ADMIN_GROUPS, ControlPlane
from tests.rig.kubelet import FakeKubelet
from tests.rig.nodes import gpu_nodes
from tests.rig.process import RigError

NODES, GPUS, RACKS = 4, 4, 2  # the smallest cluster on which topology and gangs mean something


def install_crds(control_plane: ControlPlane) -> str:
    """Install what ``queuectl crds`` prints; one line that says what happened."""
    try:
        return f"{len(apply(control_plane, product_crds()))} definitions of queuectl.io installed"
    except RigError as error:
        return f"no definitions of queuectl.io: {error}"


async def serve(control_plane: ControlPlane, path: str, crds: str) -> None:
    """Play the nodes and print how to look at them, until SIGINT or SIGTERM. Raises RigError when a program dies."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Api(control_plane.kubeconfig("rig-kubelet", ADMIN_GROUPS)) as api:
        kubelet = FakeKubelet(api, gpu_nodes("node", NODES, GPUS, RACKS), heartbeat=control_plane.node_grace / 4)
        await kubelet.start()
        config = control_plane.admin_kubeconfig
        print(
            f"rig: {build.VERSION} at {control_plane.server}, ready in {control_plane.start_seconds:.1f} s; {crds}\n"
            f"rig: {NODES} nodes x {GPUS} GPUs in {RACKS} racks; logs and audit log in {control_plane.folder}\n\n"
            f"  export KUBECONFIG={config}{path}\n"
            "  kubectl get nodes -L example.com/rack\n"
            "  kubectl create job hello --image=none && kubectl get pods -o wide\n\n"
            "rig: Ctrl-C ends it and removes everything",
            flush=True,
        )
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), 1.0)  # once a second, look whether all are alive
            control_plane.check()
            kubelet.check()
        await kubelet.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 0 after Ctrl-C, 1 when the control plane could not be started or died."""
    parser = argparse.ArgumentParser(prog="python -m tests.rig", description=__doc__)
    parser.add_argument("--no-kubectl", action="store_true", help="do not build kubectl (about 100 s, once)")
    parser.add_argument("--native", action="store_true", help="with native PodGroups (scheduling.k8s.io/v1beta1)")
    options = parser.parse_args(arguments)
    folder = build.build({**build.PROGRAMS, **({} if options.no_kubectl else build.KUBECTL)})
    path = f' PATH="{folder}:$PATH"' if (folder / "kubectl").exists() else ""
    # Before the loop has its handlers, a SIGTERM must unwind as Ctrl-C does, or the programs would be killed, not ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with ControlPlane(native=options.native) as control_plane:
            asyncio.run(serve(control_plane, path, install_crds(control_plane)))
    except RigError as error:
        print(f"rig: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    print("rig: ended")
    return 0


if __name__ == "__main__":
    sys.exit(main())
