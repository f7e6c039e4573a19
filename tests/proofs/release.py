"""``make proof-release``: what is claimed of the release protocol, measured on a real control plane."""

from __future__ import annotations

import asyncio
import os
import sys

from tests.proofs import cost, crash, gangs, mutants
from tests.proofs.stage import Stage
from tests.proofs.table import Proof
from tests.rig import build


async def prove(proof: Proof) -> None:
    """All parts, in the order of the issue's list."""
    await proof.part("decode", lambda: cost.decode(proof))
    async with Stage.up() as stage:
        await gangs.all_gangs(proof, stage)
        await crash.all_crashes(proof, stage)
        await proof.part("mutant", lambda: mutants.mutants(proof, stage))
    if proof.sample:  # what follows is minutes of load, and figures that a busy machine would spoil
        return
    # Cost is measured on a fresh control plane: the store and the log of the first hold hundreds of crashed releases.
    async with Stage.up() as stage:
        await proof.part("release rate", lambda: cost.release_rate(proof, stage))
        await proof.part("idle", lambda: cost.idle(proof, stage))


def main() -> int:
    """Exit code 0 when every row holds."""
    if build.binaries() is None:
        print("proof-release needs the control plane: run `make rig-build` once (Go 1.26 or newer)")
        # The sample is part of `make test`, which does without the control plane unless it is required.
        return 0 if os.environ.get("SAMPLE") == "1" and os.environ.get("RIG") != "require" else 1
    proof = Proof("release")
    asyncio.run(prove(proof))
    return proof.end()


if __name__ == "__main__":
    sys.exit(main())
