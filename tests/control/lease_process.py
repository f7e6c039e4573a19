"""A process that stands for election on a real cluster: ``python -m tests.control.lease_process KUBECONFIG NAMESPACE ID``.

It prints one line for each thing that happens, with the machine's monotonic time: ``leading AT FENCE``; ``write AT FENCE``
for each Lease write that it sent and the server took while it believed to lead; ``lost AT``; ``ended AT`` after SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time

from queuectl.control.lease import Leadership, LeadershipLost, Terms
from queuectl.drivers.kube.cluster import KubeCluster

TERMS = Terms(duration=4, margin=1.5, look=0.3)  # short, for a test; long beside a hiccup of a busy machine


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def say(what: str, fence: int = 0) -> None:
    print(what, f"{time.monotonic():.3f}", fence, flush=True)


async def main(kubeconfig: str, namespace: str, identity: str) -> None:
    async with KubeCluster.connect(kubeconfig) as cluster:
        leadership = Leadership(cluster, identity, SystemClock(), namespace=namespace, terms=TERMS)

        async def lead() -> None:
            say("leading", leadership.fence)
            while True:
                if leadership.fresh():
                    say("write", leadership.fence)
                await asyncio.sleep(0.02)

        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            await leadership.run(lead)
        except LeadershipLost as lost:
            say(f"lost ({lost})".replace(" ", "-"))
        except asyncio.CancelledError:
            say("ended")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
