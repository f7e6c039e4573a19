"""Job traces: three formats read, replayed, and held against figures that were computed without us."""

from __future__ import annotations

import heapq
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.drivers.replay import traces
from queuectl.drivers.replay.reading import BadFileError
from queuectl.drivers.replay.report import percentile, replay
from queuectl.drivers.replay.submission import Part, Submission
from queuectl.drivers.replay.traces import FORMATS, Arrival, Format, Trace

HEADERS = {
    "tiresias": "job_id,num_gpu,submit_time,iterations,model_name,duration,interval",
    "philly-chronus": (
        "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,"
        "expect_value_list,best_effort,job_type"
    ),
    "philly-gavel": "arrival_s,vc,gpus,approx_duration_s",
}


def trace(tmp_path: Path, format_: str, *rows: str, limit: int | None = None, one_queue: bool = False) -> Trace:
    path = tmp_path / "trace.csv"
    path.write_text("\n".join([HEADERS[format_], *rows, ""]))
    return traces.load(path, FORMATS[format_], limit=limit, one_queue=one_queue)


def told(found: Trace) -> list[tuple[int, str, str, int, int | None]]:
    one = [(arrival.at, arrival.submission) for arrival in found.arrivals]
    return [(at, gang.name, gang.queue, gang.size, gang.run) for at, gang in one]


@pytest.mark.parametrize("name", list(HEADERS))
def test_a_format_is_told_by_its_header(name: str) -> None:
    found = traces.detect(HEADERS[name])
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("line", ["", "nodes:", "a,b,c", '"', "job_id,num_gpu"])
def test_anything_else_is_no_trace(line: str) -> None:
    assert traces.detect(line) is None


def test_tiresias_in_seconds_and_one_queue(tmp_path: Path) -> None:
    found = trace(tmp_path, "tiresias", "7,4,30,1,vgg,100,1", "2,1,0,1,vgg,5,1", "3,0,1,1,vgg,5,1")
    assert told(found) == [(0, "job-2", "default", 1, 5_000), (30_000, "job-7", "default", 4, 100_000)]
    assert (found.dropped, found.queues) == (1, ["default"])


def test_chronus_in_minutes_and_a_queue_a_user(tmp_path: Path) -> None:
    rows = ["0,vc_B,2,3,1,vgg,10,1,1,1,0,strict", "1,vc_a,1,3,1,vgg,1,1,1,1,0,strict"]
    found = trace(tmp_path, "philly-chronus", *rows)
    assert told(found) == [(180_000, "job-0", "vc-b", 2, 600_000), (180_000, "job-1", "vc-a", 1, 60_000)]
    assert found.queues == ["vc-a", "vc-b"]
    assert trace(tmp_path, "philly-chronus", *rows, one_queue=True).queues == ["default"]


def test_gavel_in_seconds_without_names(tmp_path: Path) -> None:
    found = trace(tmp_path, "philly-gavel", "5,abc,4,60", "0,abc,1,60", limit=1)
    assert told(found) == [(0, "job-000001", "abc", 1, 60_000)]


def test_equal_times_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    rows = [f"{number},1,0,1,vgg,1,1" for number in (10, 9, 100, 2)]
    names = [one.submission.name for one in trace(tmp_path, "tiresias", *rows).arrivals]
    assert names == ["job-2", "job-9", "job-10", "job-100"]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("1,x,0,1,vgg,1,1", r"trace.csv:2: num_gpu: 'x' is no whole number"),
        ("1,-1,0,1,vgg,1,1", "num_gpu: '-1' is no whole number"),
        ("1,1,0.5,1,vgg,1,1", "submit_time: '0.5' is no whole number"),
        ("1,1,0,1,vgg,nan,1", "duration: 'nan' is no whole number"),
        ("1,999999,0,1,vgg,1,1", "num_gpu: 999999 is more than"),
        ("1,1,99999999999,1,vgg,1,1", "submit_time: 99999999999 is more than"),
        ("1,1", "submit_time: '' is no whole number"),
    ],
)
def test_a_bad_row_is_named_with_its_line(tmp_path: Path, row: str, says: str) -> None:
    with pytest.raises(BadFileError, match=says):
        trace(tmp_path, "tiresias", row)


def test_other_files_that_are_no_traces(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    for content, says in ((b"a,b\n", "no column job_id; tiresias has job_id, num_gpu"), (b"\xff", "utf-8")):
        path.write_bytes(content)
        with pytest.raises(BadFileError, match=says):
            traces.load(path, FORMATS["tiresias"])
    with pytest.raises(BadFileError, match="job_id 1 is there twice"):
        trace(tmp_path, "tiresias", "1,1,0,1,vgg,1,1", "1,1,5,1,vgg,1,1")


def test_nodes_in_either_spelling() -> None:
    found = list(traces.nodes("12x8"))
    assert (found[0].name, found[11].name, found == list(traces.nodes("12×8"))) == ("node-00", "node-11", True)
    for text in ("", "8", "0x8", "8x0", "axb", "1x1x1", "999999x1", "-1x8"):
        with pytest.raises(BadFileError, match="write it as 128x8"):
            list(traces.nodes(text))


def test_percentiles_by_nearest_rank() -> None:
    hundred = list(range(1, 101))
    assert [percentile(hundred, one) for one in (50, 95, 99, 100)] == [50, 95, 99, 100]
    assert (percentile([], 50), percentile([7], 99)) == (0, 7)


# ---- replayed


def test_two_jobs_by_hand(tmp_path: Path) -> None:
    """One node of 2 GPUs: the second waits 70 s for both; 3 GPUs never fit. (1 x 100 + 2 x 50) / (2 x 150) is used."""
    found = replay(
        trace(tmp_path, "tiresias", "0,1,0,1,vgg,100,1", "1,2,30,1,vgg,50,1", "2,3,30,1,vgg,5,1", "3,0,30,1,vgg,5,1"),
        traces.nodes("1x2"),
    )
    body = found.as_json()
    assert body.pop("planHash") == found.plan_hash
    assert body == {
        "format": "tiresias", "gangs": 3, "finished": 2, "waiting": 1, "dropped": 1, "gpus": 2,
        "makespanSeconds": 150.0, "waitSeconds": {"avg": 35.0, "p50": 0.0, "p95": 70.0, "p99": 70.0},
        "jctSeconds": {"avg": 110.0}, "utilisation": 0.666667,
    }  # fmt: skip


def skipping(jobs: list[tuple[int, int, int]], gpus: int) -> list[int]:
    """Waits of (arrival, pods, run) under first come first served with skipping, counting GPUs only: the oracle.

    At equal times completions come before arrivals; a job of no time gives its GPUs back before the others are looked at
    again. The naive variant that stops at the first job that does not fit gives other waits.
    """
    waits = [0] * len(jobs)
    free, now = gpus, 0
    pending: list[int] = []
    ends: list[tuple[int, int]] = []
    arrivals = sorted(range(len(jobs)), key=lambda job: (jobs[job][0], job))
    while arrivals or ends:
        now = min([jobs[arrivals[0]][0]] if arrivals else [ends[0][0]], [ends[0][0]] if ends else [10**18])[0]
        while ends and ends[0][0] <= now:
            free += jobs[heapq.heappop(ends)[1]][1]
        while arrivals and jobs[arrivals[0]][0] <= now:
            pending.append(arrivals.pop(0))
        for job in list(pending):
            if jobs[job][1] <= free:
                free -= jobs[job][1]
                waits[job] = now - jobs[job][0]
                heapq.heappush(ends, (now + jobs[job][2], job))
                pending.remove(job)
    return waits


def made(jobs: list[tuple[int, int, int]]) -> Trace:
    found = []
    for number, (at, size, run) in enumerate(jobs):
        part = Part(size=size, minimum=size, shape=traces._POD)
        found.append(Arrival(at, Submission(name=f"job-{number:03d}", queue="default", parts=(part,), run=run)))
    found.sort(key=lambda one: (one.at, one.submission.name))
    return Trace("tiresias", tuple(found), 0)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8), st.integers(1, 20)), max_size=25))
def test_one_queue_is_first_come_first_served_with_skipping(jobs: list[tuple[int, int, int]]) -> None:
    """Pods of one GPU cannot fragment a node, so counting GPUs is exact, and the waits must be the oracle's."""
    jobs = [(at * 1000, size, run * 1000) for at, size, run in jobs]
    found = replay(made(jobs), traces.nodes("2x4"))
    assert sorted(found.waits) == sorted(skipping(jobs, 8))
    assert found.waiting == 0


def test_the_oracle_is_not_plain_first_come_first_served() -> None:
    """A head of 8 with 4 free: the 2 behind it go first."""
    assert skipping([(0, 4, 10), (1, 8, 10), (2, 2, 10)], 8) == [0, 11, 0]


def test_plans_do_not_depend_on_the_order_of_rows_or_facts() -> None:
    drawn = random.Random(7)
    jobs = [(drawn.randrange(20) * 1000, drawn.choice([1, 2, 4, 8]), drawn.randrange(1, 30) * 1000) for _ in range(80)]
    first = replay(made(jobs), traces.nodes("2x8"))
    again = replay(made(jobs), traces.nodes("2x8"), arrange=lambda changes: drawn.sample(changes, len(changes)))
    assert again == first


def test_progress_is_told() -> None:
    seen: list[tuple[int, int, int]] = []
    replay(made([(0, 1, 1000), (0, 1, 2000)]), traces.nodes("1x8"), progress=lambda *word: seen.append(word))
    assert seen == [(1, 2, 1000), (2, 2, 2000)]


# ---- the public traces themselves


def test_tiresias_on_two_nodes_of_eight(shared: Path) -> None:
    path = shared / "data" / "traces" / "small" / "tiresias_60_job.csv"
    found = replay(traces.load(path, FORMATS["tiresias"]), traces.nodes("2x8"))
    assert (found.gangs, found.finished, found.waiting, found.dropped) == (60, 60, 0, 0)
    assert found.makespan >= 1_800_000 + 1_471_000  # the longest job arrives at 1,471 s and runs 1,800 s


@pytest.mark.parametrize(("name", "folder"), [("philly-chronus", "philly-chronus"), ("philly-gavel", "philly-gavel")])
def test_the_first_of_philly(shared: Path, name: str, folder: str) -> None:
    (path,) = (shared / "data" / "traces" / folder).glob("*.csv")
    format_ = traces.detect(path.open().readline())
    assert isinstance(format_, Format)
    assert format_.name == name
    found = replay(traces.load(path, format_, limit=400), traces.nodes("128x8"))
    assert (found.gangs, found.finished, found.waiting) == (400, 400, 0)


def test_philly_in_one_queue_waits_as_the_oracle_says(shared: Path) -> None:
    """The first 3,000 jobs on a quarter of the GPUs, so that they queue: each waits exactly as long as was computed."""
    (path,) = (shared / "data" / "traces" / "philly-chronus").glob("*.csv")
    found = traces.load(path, FORMATS["philly-chronus"], limit=3000, one_queue=True)
    jobs = [(one.at, one.submission.size, one.submission.run or 0) for one in found.arrivals]
    done = replay(found, traces.nodes("32x8"))
    assert sorted(done.waits) == sorted(skipping(jobs, 256))
    assert sum(done.waits) / len(done.waits) > 600_000  # they do queue


def test_chronus_is_read_whole(shared: Path) -> None:
    """30,940 rows, of which 205 ask for no GPU; 11 virtual clusters."""
    (path,) = (shared / "data" / "traces" / "philly-chronus").glob("*.csv")
    found = traces.load(path, FORMATS["philly-chronus"])
    assert (len(found.arrivals), found.dropped, len(found.queues)) == (30_735, 205, 11)
    assert found.arrivals[0].at == 60_000
