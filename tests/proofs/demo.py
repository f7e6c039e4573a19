"""``make proof-demo``: what is claimed of the demo, the cluster in memory, scenarios and the exploration."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.exploration.__main__ import everything, mutants
from tests.proofs.table import Proof

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT.parent / "shared" / "data" / "traces" / "small" / "tiresias_60_job.csv"
ONCE = ("-m", "queuectl.cli.main", "demo", "--once", "--json")
# What a machine has that has nothing: Python, make, a shell, and the programs of coreutils that the Makefile calls.
BARE = ("make", "sh", "touch", "mkdir", "rm", "dirname", "basename", "uname", "cat", "ls", "cp", "env")


async def run(
    argv: Sequence[str], environment: Mapping[str, str], folder: Path = ROOT, seconds: float = 900
) -> tuple[int, str, str]:
    """A program to its end: exit code, standard output, standard error."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment, cwd=folder
    )
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise AssertionError(f"{' '.join(argv)}: not within {seconds:g} s") from None
    return process.returncode or 0, out.decode(), err.decode()


def ours(folder: Path = ROOT, **more: str) -> dict[str, str]:
    """This environment, with the package as it stands in ``folder``."""
    return {**os.environ, "PYTHONPATH": str(folder), **more}


async def demo(*arguments: str, folder: Path = ROOT) -> dict[str, Any]:
    """The result of ``queuectl demo --once --json``. Raises AssertionError with its last words."""
    code, out, err = await run([sys.executable, *ONCE, *arguments], ours(folder))
    assert code == 0, err[-500:]
    found: dict[str, Any] = json.loads(out)
    return found


# ---- the demo


async def bare_machine(proof: Proof) -> None:
    """A clean clone, nothing in the environment, an empty home: only what the README asks for."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        for name in ("bin", "home"):
            (folder / name).mkdir()
        for name in BARE:
            (folder / "bin" / name).symlink_to(shutil.which(name) or name)
        (folder / "bin" / "python3.11").symlink_to(Path(sys.base_prefix) / "bin" / "python3.11")
        clone = folder / "clone"
        code, _, err = await run(["git", "clone", "-q", str(ROOT), str(clone)], dict(os.environ))
        assert code == 0, err
        environment = {"HOME": str(folder / "home"), "PATH": str(folder / "bin")}
        code, _, err = await run(["make", "venv"], environment, clone)
        assert code == 0, err[-500:]
        began = time.monotonic()
        code, out, err = await run(["make", "demo", "ARGS=--once --json"], environment, clone)
        seconds = time.monotonic() - began
    assert code == 0, err[-500:]
    _figures(proof, json.loads(out), seconds, 'a bare machine (env -i, empty home): `make demo ARGS="--once --json"`')


def _figures(proof: Proof, found: dict[str, Any], seconds: float, where: str, gangs: int = 1500) -> None:
    proof.row(
        f"{where}: all gangs of a day at load 0.9 finish",
        f"{found['finished']} of {found['gangs']}, {found['waiting']} wait, in {seconds:.0f} s",
        f"all of ≥ {gangs:,}, < 90 s",
        found["finished"] == found["gangs"] >= gangs and seconds < 90,
    )
    proof.row(
        "… the first gang runs", f"{found['first_running_s']:.1f} s", "< 30 s", 0 <= found["first_running_s"] < 30
    )
    broken = [found[name] for name in ("partial_releases", "double_charges", "violations")]
    proof.row(
        "… partial releases, double charges, violations of P1, P2, P4, counted from the objects' history",
        f"{broken}; {found['gpu_utilisation']:.1%} of the GPUs in use, wait p50 {found['wait_p50_s']:g} s",
        "[0, 0, 0]",
        broken == [0, 0, 0],
    )


async def small_day(proof: Proof) -> None:
    """The sample's: a quarter of the nodes."""
    began = time.monotonic()
    found = await demo("--nodes", "16x8")
    _figures(proof, found, time.monotonic() - began, "16 × 8 GPUs, `--once --json`", 300)


async def tiresias(proof: Proof) -> None:
    """The toy trace of sixty gangs."""
    if not TRACE.exists():
        print("# tiresias: no ../shared, left out", file=sys.stderr)
        return
    found = await demo("--trace", str(TRACE), "--nodes", "2x8")
    figure = f"{found['finished']} of {found['gangs']}, {found['violations']} violations"
    proof.row("tiresias on 2 × 8 GPUs", figure, "60 of 60, 0 violations", figure == "60 of 60, 0 violations")


class _Hollow(ast.NodeTransformer):
    """Leaves of every function its name and parameters."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """It then returns None."""
        node.body = [ast.Pass()]
        return node


async def without_translation(proof: Proof) -> None:
    """contract/translate.py without the bodies of its functions: if the demo still worked, it would be a mock-up."""
    with tempfile.TemporaryDirectory() as text:
        copy = Path(text)
        shutil.copytree(ROOT / "queuectl", copy / "queuectl", ignore=shutil.ignore_patterns("__pycache__"))
        path = copy / "queuectl" / "contract" / "translate.py"
        path.write_text(ast.unparse(_Hollow().visit(ast.parse(path.read_text()))))
        code, out, err = await run([sys.executable, *ONCE, "--nodes", "2x8", "--load", "0.1"], ours(copy), copy)
    finished = json.loads(out)["finished"] if code == 0 else 0
    words = next((line.strip(" |") for line in reversed(err.splitlines()) if "Error: " in line), "")[:100]
    proof.row(
        "the functions of contract/translate.py without their bodies: the demo breaks, so it goes through the wire objects",
        f"exit code {code}, {finished} gangs finished" + (f": {words}" if code else ""),
        "0 gangs finished",
        finished == 0,
    )


# ---- suites


async def suite(
    proof: Proof, claim: str, least: int, *paths: str, rig: str = "require", only: Callable[[str], bool] | None = None
) -> None:
    """Tests as a claim: all of them pass, none is skipped, and there are at least so many."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *paths]
        _, out, _ = await run(argv, ours(RIG=rig, SCENARIOS="all"), seconds=1800)
        assert report.exists(), out[-500:]
        cases = ET.parse(report).getroot().iter("testcase")
        found = [(f"{one.get('classname')}::{one.get('name')}", [child.tag for child in one]) for one in cases]
    found = [(name, tags) for name, tags in found if only is None or only(name)]
    bad = [name for name, tags in found if {"failure", "error", "skipped"} & set(tags)]
    figure = f"{len(found) - len(bad)} of {len(found)} pass" + (f"; not: {', '.join(bad[:3])}" if bad else "")
    proof.row(claim, figure, f"all of ≥ {least}", not bad and len(found) >= least)


async def suites(proof: Proof) -> None:
    """What the tests show, on the rig and in Chromium where that is claimed."""
    await suite(
        proof,
        "conformance: every case asked of the real API server and of the one in memory, answers equal",
        40,
        "tests/conformance",
        "tests/contract/test_conformance.py",
    )
    await suite(
        proof,
        "Chromium: a gang appears, waits with its reason, runs and ends without reload; reconnects; hostile names are text",
        10,
        "tests/browser",
    )
    for tier, paths in (
        (
            "engine: as expected, and plan hashes equal on two runs, over PYTHONHASHSEED, over input order",
            ["tests/drivers/test_scenarios.py"],
        ),
        ("cluster in memory, with the real controller", ["tests/tiers/test_scenarios_in_memory.py"]),
        ("real control plane", ["tests/tiers/test_rig_scenarios.py"]),
    ):
        await suite(proof, f"scenarios, {tier}", 40, *paths)


# ---- exploration


async def exploration(proof: Proof) -> None:
    """The real release.py in every order, within the time that is given."""
    states, seconds = (4_000, 15.0) if proof.sample else (1_000_000, 600.0)
    results = list(await asyncio.to_thread(lambda: list(everything(states, seconds))))
    total, faults = sum(one.states for one in results), sum(len(one.faults) for one in results)
    exhausted, spent = all(one.exhausted for one in results), sum(one.seconds for one in results)
    least = 1000 if proof.sample else 100_000
    proof.row(
        "exploration of the release protocol: states; violations of P1–P5, L1 and L3",
        f"{total:,} states in {spent:.0f} s{', exhausted' if exhausted else ''}; {faults} violations",
        f"≥ {least:,} or exhausted, ≤ 600 s; 0",
        (total >= least or exhausted) and spent <= 630 and faults == 0,
    )
    caught = {}
    for name, promise, result in await asyncio.to_thread(lambda: list(mutants())):
        caught[name] = bool(result.faults) and result.faults[0].text.startswith(promise)
    proof.row(
        "… each mutant is caught",
        ", ".join(f"{name}: {'caught' if hit else 'NOT CAUGHT'}" for name, hit in caught.items()),
        "all caught",
        all(caught.values()),
    )


async def decisions(proof: Proof) -> None:
    """The benchmark's own figures."""
    code, out, err = await run([sys.executable, "benchmarks/decisions.py"], ours())
    assert code == 0, err[-500:]
    found = json.loads(out.strip().splitlines()[0])
    proof.row(
        "decisions a second on 10,000 nodes at 90 %",
        f"{found['decisions_per_s']:,.0f}/s, p50 {found['p50_ms']} ms, p99 {found['p99_ms']} ms",
        "≥ 2,000/s",
        found["decisions_per_s"] >= 2000,
    )


async def prove(proof: Proof) -> None:
    """All parts, in the order of the issue's list. The sample leaves out what the tests show anyhow."""
    if proof.sample:
        await proof.part("a small day", lambda: small_day(proof))
    else:
        await proof.part("a bare machine", lambda: bare_machine(proof))
    await proof.part("tiresias", lambda: tiresias(proof))
    await proof.part("without translation", lambda: without_translation(proof))
    if not proof.sample:
        await proof.part("suites", lambda: suites(proof))
    await proof.part("exploration", lambda: exploration(proof))
    if not proof.sample:
        await proof.part("decisions", lambda: decisions(proof))


def main() -> int:
    """Exit code 0 when every row holds."""
    proof = Proof("demo")
    asyncio.run(prove(proof))
    return proof.end()


if __name__ == "__main__":
    sys.exit(main())
