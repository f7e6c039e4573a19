"""Hostile text, ages, and tables: nothing a stranger named reaches the terminal as a command."""

from __future__ import annotations

import io
import json
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from queuectl.cli import render
from queuectl.cli.render import Table, as_json, as_yaml, block
from queuectl.cli.text import HOSTILE, ago, json_safe, plain
from queuectl.contract import foreign
from tests.cli.conftest import Call, Served
from tests.serve import standin
from tests.serve.standin import Standin


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("train", "train"),
        ("größer als ≤ 8 × 日本", "größer als ≤ 8 × 日本"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x9b2J", "\\x9b2J"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("a\u200bb", "a\\u200bb"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_what_terminals_obey_is_written_out(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(st.text())
def test_no_text_keeps_a_character_that_acts(text: str) -> None:
    assert not HOSTILE.search(plain(text))


@given(st.dictionaries(st.text(), st.text(st.characters(exclude_categories=["Cs"])) | st.integers() | st.none()))
def test_safe_json_and_yaml_mean_the_same(obj: dict[str, object]) -> None:
    text = as_json(obj)
    assert json.loads(text) == obj
    assert not HOSTILE.search(text.replace("\n", ""))
    written = as_yaml(obj)
    assert not HOSTILE.search(written.replace("\n", ""))
    assert yaml.safe_load(written) == obj


def test_characters_beyond_the_first_plane_stay_one_character() -> None:
    assert json.loads(json_safe('"\U000e0041"')) == "\U000e0041"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (190, "3m10s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (5 * 3600 + 120, "5h2m"),
        (26 * 3600, "26h"),
        (3 * 86400 + 4 * 3600, "3d4h"),
        (30 * 86400, "30d"),
        (740 * 86400, "2y10d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_ages_as_kubectl_writes_them(seconds: int, shown: str) -> None:
    assert ago(seconds * 1000) == shown


def test_a_table_grows_with_what_it_shows() -> None:
    table = Table(["name", "age"])
    assert table.lines([]) == []
    assert table.lines([["a", 1]]) == ["NAME   AGE", "a      1"]
    assert table.lines([["longer-name", None]]) == ["longer-name   <none>"]
    assert table.lines([["b", ""]]) == ["b             <none>"]


def test_a_block_aligns_its_values() -> None:
    assert block([("Name", "a"), ("Given back", "\x1b")]) == ["Name:        a", "Given back:  \\x1b"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_only_on_a_terminal_and_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["a", "Running"]]
    assert not render.coloured()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert Table(["name", "phase"]).lines(rows)[1] == "a      \x1b[32mRunning\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Table(["name", "phase"]).lines(rows)[1] == "a      Running"


EVIL = "x\x1b]0;owned\x07\n\u202e"


@pytest.fixture
def evil(served: Served, call: Call) -> Call:
    """A namespace, group and queue of that name, which no API server would store."""

    def happen(here: Standin) -> None:
        here.see(foreign.POD_GROUPS, standin.group(EVIL, EVIL, 1, namespace=EVIL))
        here.see(foreign.PODS, standin.pod("p", EVIL, 1, namespace=EVIL, group=EVIL, gates=(EVIL,)))
        here.lead()

    served.do(happen)
    return call


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "gangs", "-A", "-o", "wide"),
        ("get", "gangs", "-A", "-o", "name"),
        ("get", "gangs", "-A", "-o", "json"),
        ("get", "gangs", "-A", "-o", "yaml"),
        ("describe", "gang", EVIL, "-n", EVIL),
        ("explain", "gang", EVIL, "-n", EVIL),
        ("explain", "gang", EVIL + "x", "-n", "ml"),
        ("get", "queue", EVIL),
        ("get", EVIL),
        ("explain", "gang", "x", "-n", "none", "-o", "json"),
    ],
)
def test_hostile_names_never_reach_the_terminal(evil: Call, arguments: tuple[str, ...]) -> None:
    done = evil(*arguments)
    assert done.out or done.err
    for text in (done.out, done.err):
        assert not HOSTILE.search(text.replace("\n", ""))
        assert "owned" not in text or "\\" in text
