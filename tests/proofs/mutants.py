"""The proof can fail: run on a controller whose release skips the record, it says FAILS."""

from __future__ import annotations

from tests.proofs import gangs
from tests.proofs.stage import Stage
from tests.proofs.table import Proof


async def mutants(proof: Proof, stage: Stage) -> None:
    """The first part again, on a mutant."""
    other = Proof("release", quiet=True)
    async with stage.leader(mutant="no-record") as controller:
        await other.part("three gangs", lambda: gangs.three_jobs(other, stage, controller, mutant=True))
    failed = [row for row in other.rows if not row.ok]
    proof.row(
        "the same proof on a controller that skips the record",
        f"{len(failed)} of {len(other.rows)} rows FAILS: {failed[0].figure if failed else 'none'}",
        "≥ 1 FAILS",
        bool(failed),
    )
