"""Public job traces as submissions: one job of n GPUs is a gang of n pods with one GPU each.

Three formats, told apart by their header: ``tiresias`` (Gu et al., NSDI'19, the simulator's ``*_job.csv``),
``philly-chronus`` (Gao et al., SoCC'21, ``trace_job_*.csv``, times in minutes) and ``philly-gavel`` (Narayanan et al.,
OSDI'20, per virtual cluster). Times become milliseconds since the first second of the trace.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from queuectl.contract.slots import MAX_MEMBERS
from queuectl.drivers.replay.reading import BadFileError
from queuectl.drivers.replay.submission import Part, Submission
from queuectl.model.gangs import Shape
from queuectl.model.resources import GPU, PODS, amounts
from queuectl.model.topology import HOSTNAME, Node

DEFAULT_QUEUE = "default"
MOST = 10**10  # seconds (minutes) that a trace may speak of; beyond it a column was taken for another
_POD = Shape(requests=amounts({GPU: 1000, PODS: 1}))
_PODS_A_NODE = 1000  # never what runs out: a trace counts GPUs only


class Format(Struct, frozen=True):
    """Columns of a format. ``unit`` is the milliseconds in one of its time units; ``job`` is None where rows have no name."""

    name: str
    job: str | None
    gpus: str
    arrival: str
    duration: str
    queue: str | None
    unit: int

    @property
    def columns(self) -> list[str]:
        """What its header must have."""
        return [one for one in (self.job, self.queue, self.gpus, self.arrival, self.duration) if one is not None]


FORMATS = {
    one.name: one
    for one in (  # the first whose columns are all there; chronus has those of tiresias too
        Format("philly-chronus", "job_id", "num_gpu", "submit_time", "duration", "user", 60_000),
        Format("tiresias", "job_id", "num_gpu", "submit_time", "duration", None, 1000),
        Format("philly-gavel", None, "gpus", "arrival_s", "approx_duration_s", "vc", 1000),
    )
}


class Arrival(Struct, frozen=True):
    """A gang and when it arrives (ms)."""

    at: int
    submission: Submission


class Trace(Struct, frozen=True):
    """Arrivals in order; ``dropped`` rows asked for no GPU."""

    format: str
    arrivals: tuple[Arrival, ...]
    dropped: int

    @property
    def queues(self) -> list[str]:
        """Every queue that is named, sorted."""
        return sorted({one.submission.queue for one in self.arrivals})


def detect(header: str) -> Format | None:
    """The format of a file by its first line; None when it is no trace."""
    columns = set(next(csv.reader([header]), []))
    return next((one for one in FORMATS.values() if columns.issuperset(one.columns)), None)


def load(path: Path, format_: Format, *, limit: int | None = None, one_queue: bool = False) -> Trace:
    """Read a trace: all rows, or the first ``limit`` arrivals, all into one queue if asked. Raises BadFileError."""
    found: list[tuple[int, str, Submission]] = []
    dropped = 0
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            if missing := [one for one in format_.columns if one not in (rows.fieldnames or ())]:
                raise BadFileError(f"{path}: no column {missing[0]}; {format_.name} has {', '.join(format_.columns)}")
            for number, row in enumerate(rows):
                where = f"{path}:{rows.line_num}"
                gpus = _number(where, format_.gpus, row, MAX_MEMBERS)
                if gpus == 0:
                    dropped += 1
                    continue
                arrival = _number(where, format_.arrival, row, MOST) * format_.unit
                name = f"job-{_label(row[format_.job] if format_.job else f'{number:06d}')}"
                queue = DEFAULT_QUEUE if one_queue or format_.queue is None else _label(row[format_.queue])
                run = _number(where, format_.duration, row, MOST) * format_.unit
                part = Part(size=gpus, minimum=gpus, shape=_POD)
                found.append((arrival, name, Submission(name=name, queue=queue, parts=(part,), run=run)))
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise BadFileError(f"{path}: {problem}") from None
    # Of equal times the order in the file must not matter: by name, numbers as numbers.
    found.sort(key=lambda one: (one[0], [(len(digits), digits) for digits in re.findall(r"\d+", one[1])], one[1]))
    names: set[str] = set()
    for _, name, _ in found:
        if name in names:
            raise BadFileError(f"{path}: {format_.job} {name.removeprefix('job-')} is there twice")
        names.add(name)
    arrivals = tuple(Arrival(at, submission) for at, _, submission in found)
    return Trace(format_.name, arrivals if limit is None else arrivals[:limit], dropped)


def fleet(text: str) -> tuple[int, int]:
    """``128x8`` or ``128×8``: that many nodes with that many GPUs each. Raises BadFileError."""
    match = re.fullmatch(r"([1-9][0-9]{0,4})[x×]([1-9][0-9]{0,3})", text.lower())
    if match is None:
        raise BadFileError(f"--nodes {text[:40]}: write it as 128x8, up to 99999 nodes with up to 9999 GPUs each")
    return int(match[1]), int(match[2])


def nodes(text: str) -> Iterator[Node]:
    """The nodes of a ``fleet``. Raises BadFileError."""
    count, gpus = fleet(text)
    for number in range(count):
        name = f"node-{number:0{len(str(count - 1))}d}"
        yield Node(
            name=name,
            allocatable=amounts({GPU: gpus * 1000, PODS: max(_PODS_A_NODE, gpus)}),
            labels=((HOSTNAME, name),),
        )


def _number(where: str, column: str, row: dict[str, str], most: int) -> int:
    text = (row[column] or "").strip()
    if not re.fullmatch(r"[0-9]{1,12}(\.0*)?", text):
        raise BadFileError(f"{where}: {column}: {text[:40]!r} is no whole number of at least 0")
    if (number := int(text.partition(".")[0])) > most:
        raise BadFileError(f"{where}: {column}: {number} is more than {most}")
    return number


def _label(text: str | None) -> str:
    """The text as a name of ours."""
    return re.sub(r"[^a-z0-9]+", "-", (text or "").lower()).strip("-")[:50] or "none"
