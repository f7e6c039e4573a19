"""The documentation: tables are generated, links lead somewhere, commands exist, and the quickstart runs."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from pathlib import Path

import click
import pytest
import yaml

from queuectl.cli.main import VERBS, cli
from queuectl.contract.config import Configuration
from queuectl.contract.v1alpha1 import validate
from queuectl.contract.vocabulary import examples
from queuectl.model.reasons import Reason, remedy, sentence
from tests.cli import configuration
from tests.rig import build
from tests.rig.client import eventually
from tests.rig.controlplane import free_port
from tests.rig.process import Process, RigError

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
OURS = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in
        ("quickstart", "concepts", "operations", "configuration", "troubleshooting"))]  # fmt: skip


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def test_the_table_of_settings_is_in_step() -> None:
    text = configuration.PAGE.read_text()
    assert configuration.page(text) == text, "run `python -m tests.cli.configuration`"
    for example in blocks(configuration.PAGE, "yaml"):
        Configuration.model_validate(yaml.safe_load(example))


@pytest.mark.parametrize("page", OURS, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", OURS, ids=lambda page: page.name)
def test_every_command_that_is_shown_exists(page: Path) -> None:
    shown = re.findall(r"(?:^|[`$|] ?|do )queuectl ([a-z][^`|<>&\n]*)", page.read_text(), re.MULTILINE)
    for words in shown:
        verb, *arguments = shlex.split(words.partition(";")[0].rstrip("\\"), comments=True)
        assert verb in VERBS, f"{page.name}: queuectl {words}"
        command = cli.get_command(click.Context(cli), verb)
        assert command is not None
        options = {option for one in command.params for option in one.opts} | {"--help"}
        given = {argument.partition("=")[0] for argument in arguments if re.match(r"--?[a-zA-Z]", argument)}
        assert given <= options, f"{page.name}: queuectl {words}"


@pytest.mark.parametrize("page", OURS, ids=lambda page: page.name)
def test_objects_that_are_shown_are_valid(page: Path) -> None:
    heredocs = [
        body
        for block in blocks(page, "sh")
        for body in re.findall(r"<<'YAML'\n(.*?)^YAML", block, re.DOTALL | re.MULTILINE)
    ]
    for text in [*blocks(page, "yaml"), *heredocs]:
        for document in yaml.safe_load_all(text):
            if isinstance(document, dict) and str(document.get("apiVersion", "")).startswith("queuectl.io/"):
                validate(document["kind"], document)


def test_reasons_are_all_in_the_troubleshooting_page() -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    assert [reason for reason in Reason if f"`{reason}`" not in text] == []


def test_the_first_screen_shows_the_words_of_today() -> None:
    misfit = examples()[Reason.NO_DOMAIN_FITS]
    text = (ROOT / "README.md").read_text()
    assert f"1. NoDomainFits: {sentence(misfit)}.\n   What would free it: {remedy(misfit)}.\n" in text


@pytest.mark.rig
@pytest.mark.timeout(1500)  # kubectl is built where it is not: about 100 s, once
async def test_the_quickstart_runs(tmp_path: Path) -> None:
    """Every ``sh`` block, in order, against ``make rig``'s own program."""
    kubectl = build.build(build.KUBECTL)
    rig = Process("rig", [sys.executable, "-m", "tests.rig", "--no-kubectl"], tmp_path / "rig.log")
    try:
        line: re.Match[str] | None = await eventually(
            lambda: re.search(r"export KUBECONFIG=(\S+)", rig.log.read_text()), 120, "the rig to be up"
        )
        assert line is not None
        os.symlink(ROOT / ".venv", tmp_path / ".venv")
        script = "set -euo pipefail\n" + "\n".join(blocks(ROOT / "docs" / "quickstart.md", "sh"))
        url = f"127.0.0.1:{free_port()}"
        script = script.replace("queuectl run ", f"queuectl run --listen {url} ").replace("127.0.0.1:8080", url)
        environment = {**os.environ, "KUBECONFIG": line[1], "QUEUECTL_SERVER": f"http://{url}"}
        environment["PATH"] = f"{kubectl}:{environment['PATH']}"
        written = tmp_path / "output"
        shell = Process("quickstart", ["bash", "-c", f"cd {tmp_path}\n{script}"], written, environment)
        try:
            code = await asyncio.to_thread(shell.wait, 180)
        except RigError:
            log = (tmp_path / "queuectl.log").read_text()
            pytest.fail(f"not at its end after 180 s:\n{written.read_text()[-4000:]}\n{log[-4000:]}")
        finally:
            shell.stop(1.0)
        out = written.read_text()
        assert code == 0, f"{out}\n{(tmp_path / 'queuectl.log').read_text()}"
        assert "in namespace default runs on 2 nodes: 2 of 2 pods running." in out
        assert "1. NeverFits: 3 pods can never fit into one rack" in out
        promised = blocks(ROOT / "docs" / "quickstart.md", "text")
        assert len(promised) == 1
        assert promised[0] in out
        assert (tmp_path / "queuectl.log").read_text().rstrip().endswith("ended")
    finally:
        rig.stop()
