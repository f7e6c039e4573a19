"""Leadership in virtual time: what goes wrong with the client library's elector does not go wrong here.

``upstream`` runs kubernetes_asyncio's own elector through the same fault, so that each test is known to show the defect.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time

import pytest

from queuectl.control.lease import LeadershipLost, Terms
from queuectl.control.ports import ClusterError, Refused, Throttled, Unreachable
from tests.control.leases import EPOCH, Process, Store, check_exclusive, until

pytestmark = pytest.mark.looptime


@pytest.fixture
def store() -> Store:
    return Store()


async def stop(*processes: Process) -> None:
    for process in processes:
        if process.task is not None:
            process.task.cancel()
            with contextlib.suppress(asyncio.CancelledError, LeadershipLost, Unreachable):
                await process.task


async def test_the_first_acquisition_is_one_and_every_further_one_counts(store: Store) -> None:
    a, b = Process(store, "a"), Process(store, "b")
    a.start()
    await until(lambda: a.leading)
    assert (a.leadership.fence, b.leadership.fence) == (1, 0)
    b.start()
    await asyncio.sleep(60)
    assert a.leading
    assert not b.spans
    assert b.leadership.holder == "a"
    await stop(a)
    assert store.holder == ""
    assert not a.leadership.fresh()
    assert await until(lambda: b.leading) < 3  # a clean exit is taken over at the next look, not after 15 s
    assert b.leadership.fence == 2
    await stop(b)
    b.start()  # the same process again: still another acquisition
    await until(lambda: b.leading)
    assert b.leadership.fence == 3
    await stop(b)
    check_exclusive(a, b)


async def test_requests_that_hang_end_the_old_leader_before_the_new_one_begins(store: Store) -> None:
    a, b = Process(store, "a"), Process(store, "b")
    running = a.start()
    await until(lambda: a.leading)
    b.start()
    await asyncio.sleep(30)
    a.connection.hang = "before"
    with pytest.raises(LeadershipLost, match="not renewed for 10 s"):
        await running
    assert not b.leading
    await until(lambda: b.leading)
    assert b.leadership.fence == 2
    assert a.spans[0][1] < b.spans[0][0] - 1
    await stop(b)
    check_exclusive(a, b)


async def test_a_stopped_process_is_not_fresh_when_it_goes_on(store: Store) -> None:
    a, b = Process(store, "a"), Process(store, "b")
    running = a.start()
    await until(lambda: a.leading)
    b.start()
    await asyncio.sleep(5)
    a.clock.running.clear()  # SIGSTOP
    await until(lambda: b.leading)
    assert not a.leadership.fresh()  # by the clock alone: no task of a has run since
    assert a.leading
    a.clock.running.set()
    with pytest.raises(LeadershipLost, match="we were paused"):
        await running
    assert store.holder == "b"
    await stop(b)
    check_exclusive(a, b)


async def test_a_leader_that_crashes_gives_the_lease_back_and_is_heard(store: Store) -> None:
    a, b = Process(store, "a"), Process(store, "b")
    running = a.start()
    await until(lambda: a.leading)
    b.start()
    await asyncio.sleep(5)
    a.crash = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError, match="a bug"):
        await running
    assert store.holder == ""
    assert await until(lambda: b.leading) < 3
    await stop(b)


async def test_a_cancelled_run_ends_its_leader_first_and_renews_while_it_tidies_up(store: Store) -> None:
    a, b = Process(store, "a"), Process(store, "b")
    a.tidying = 40
    running = a.start()
    await until(lambda: a.leading)
    b.start()
    running.cancel()
    await asyncio.sleep(30)
    assert a.leadership.fresh()
    assert not b.spans
    running.cancel()  # impatience reaches the leader, and does not orphan it
    with pytest.raises(asyncio.CancelledError):
        await running
    assert a.spans[0][1] == pytest.approx(30, abs=0.1)
    await until(lambda: b.leading)
    assert b.spans[0][0] >= a.spans[0][1]
    await stop(b)
    check_exclusive(a, b)


@pytest.mark.parametrize("hours", [-1, 1])
async def test_jumping_wall_clocks_change_nothing(store: Store, hours: int) -> None:
    a, b = Process(store, "a"), Process(store, "b")
    a.start()
    await until(lambda: a.leading)
    b.start()
    await asyncio.sleep(10)
    a.clock.skew = hours * 3_600_000
    await asyncio.sleep(30)
    a.connection.hang = "before"  # the record stands still when the candidate's clock jumps
    b.clock.skew = hours * 3_600_000
    await asyncio.sleep(4)
    a.connection.hang = ""
    await asyncio.sleep(30)
    assert a.leading
    assert not b.spans
    await stop(a, b)


async def test_a_wall_clock_that_stands_still_does_not_make_renewals_invisible(store: Store) -> None:
    a, b = Process(store, "a"), Process(store, "b")
    a.clock.frozen = True
    a.start()
    await until(lambda: a.leading)
    b.start()
    await asyncio.sleep(60)
    assert a.leading
    assert not b.spans
    await stop(a, b)


async def test_times_are_written_in_utc(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        a = Process(store, "a")
        a.start()
        await until(lambda: a.leading)
        assert store.lease is not None
        assert store.lease["spec"]["acquireTime"].startswith("2027-01-15T08:00:00.")  # EPOCH
        assert store.lease["spec"]["acquireTime"].endswith("Z")
        assert EPOCH == 1_800_000_000_000
        await stop(a)
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_candidates_do_not_ask_in_step(store: Store) -> None:
    a, b = Process(store, "a"), Process(store, "b")
    a.start()
    await until(lambda: a.leading)
    b.start()
    await asyncio.sleep(60)
    looks = [at for at, what in b.connection.asked if what == "get"]
    gaps = [round(later - earlier, 3) for earlier, later in itertools.pairwise(looks)]
    assert len(set(gaps)) > 10
    assert min(gaps) > 1.6
    assert max(gaps) < 2.1
    renewals = [at for at, what in a.connection.asked if what == "patch"]
    assert 60 / 3.4 <= len(renewals) <= 60 / 2.6
    await stop(a, b)


async def test_a_renewal_whose_reply_is_lost_is_recognised_as_our_own(store: Store) -> None:
    a = Process(store, "a")
    a.start()
    await until(lambda: a.leading)
    a.connection.hang = "after"
    written = len(store.history)
    await until(lambda: len(store.history) > written)
    a.connection.hang = ""
    await asyncio.sleep(30)
    assert a.leading
    assert a.leadership.fence == 1
    await stop(a)


async def test_an_acquisition_whose_reply_is_lost_is_made_again_with_a_new_fence(store: Store) -> None:
    a = Process(store, "a")
    a.connection.hang = "after"
    a.start()
    await until(lambda: store.holder == "a")
    a.connection.hang = ""
    await until(lambda: a.leading)
    assert a.leadership.fence == 2
    await stop(a)


async def test_a_process_cancelled_while_it_acquires_leaves_no_lease_behind(store: Store) -> None:
    a, b = Process(store, "a"), Process(store, "b")
    a.connection.hang = "after"
    running = a.start()
    await until(lambda: store.holder == "a")
    a.connection.hang = ""
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    b.start()
    assert await until(lambda: b.leading) < 1
    await stop(b)


async def test_a_foreign_edit_of_the_metadata_is_no_loss_but_a_take_over_is(store: Store) -> None:
    a = Process(store, "a")
    running = a.start()
    await until(lambda: a.leading)
    assert store.lease is not None
    store.lease["metadata"]["resourceVersion"] = "labelled"
    await asyncio.sleep(30)
    assert a.leading
    assert a.leadership.fence == 1
    store.write({"holderIdentity": "z", "leaseTransitions": 2}, None)
    began = asyncio.get_running_loop().time()
    with pytest.raises(LeadershipLost, match="taken over by z, fence 2"):
        await running
    assert asyncio.get_running_loop().time() - began < 4  # at the next renewal
    assert store.holder == "z"  # and it was not "given back" for its new holder


async def test_a_deleted_lease_is_a_loss_and_its_numbers_go_on(store: Store) -> None:
    a = Process(store, "a")
    running = a.start()
    await until(lambda: a.leading)
    store.lease = None
    with pytest.raises(LeadershipLost, match="deleted"):
        await running
    a.start()
    await until(lambda: a.leading)
    assert a.leadership.fence == 2
    await stop(a)


@pytest.mark.parametrize("error", [Throttled("slow down", 2.0), Unreachable("503", 503), Refused("forbidden", 403)])
async def test_short_trouble_is_survived_and_shown(store: Store, error: ClusterError) -> None:
    a = Process(store, "a")
    a.connection.error = error
    a.start()
    await asyncio.sleep(5)
    assert a.leadership.trouble == error.message
    a.connection.error = None
    await until(lambda: a.leading)
    assert a.leadership.trouble == ""
    a.connection.error = error
    await asyncio.sleep(6)
    assert a.leadership.fresh()
    a.connection.error = None
    await asyncio.sleep(20)
    assert a.leading
    await stop(a)


def test_terms_without_a_margin_are_refused() -> None:
    with pytest.raises(ValueError, match="margin"):
        Terms(duration=5, margin=5)


async def test_the_check_of_writes_finds_a_process_that_does_not_ask_whether_it_may(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = Process(store, "a"), Process(store, "b")
    a.start()
    await until(lambda: a.leading)
    monkeypatch.setattr(a.leadership, "fresh", lambda: True)
    b.start()
    await asyncio.sleep(5)
    a.clock.running.clear()
    await until(lambda: b.leading)
    await asyncio.sleep(1)
    a.clock.running.set()
    await asyncio.sleep(1)
    with pytest.raises(AssertionError, match=r"a wrote with fence 1 .* after fence 2 had begun"):
        check_exclusive(a, b)
    await stop(a, b)


def heal(process: Process) -> None:
    process.connection.hang, process.connection.error, process.connection.delay = "", None, 0.001
    process.clock.running.set()


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_fails_no_two_write_at_once_and_somebody_leads_in_the_end(store: Store, seed: int) -> None:
    """Three processes, 10 minutes, random faults of random length; a process that loses its lease starts again."""
    luck = random.Random(seed)
    processes = [Process(store, name) for name in "abc"]

    async def live(process: Process) -> None:
        while True:
            with contextlib.suppress(LeadershipLost):
                await process.leadership.run(process.lead)

    async def misfortune(process: Process) -> None:
        while True:
            await asyncio.sleep(luck.uniform(1, 40))
            match luck.randrange(5):
                case 0:
                    process.connection.hang = luck.choice(["before", "after"])
                case 1:
                    process.connection.error = Unreachable("cut")
                case 2:
                    process.connection.delay = luck.uniform(0.1, 4)
                case 3:
                    process.clock.running.clear()
                case 4:
                    process.clock.skew = luck.randrange(-10_000_000, 10_000_000)
            await asyncio.sleep(luck.uniform(0.1, 25))
            heal(process)

    lives = [asyncio.create_task(live(p)) for p in processes]
    woes = [asyncio.create_task(misfortune(p)) for p in processes]
    await asyncio.sleep(600)
    for woe in woes:
        woe.cancel()
    for p in processes:
        heal(p)
    await until(lambda: sum(p.leading for p in processes) == 1, 60)
    check_exclusive(*processes)
    fences = [transitions for _, _, transitions in store.history]
    assert fences == sorted(fences)
    assert fences[-1] > 3  # the faults did their work
    for task in lives:
        task.cancel()
    await asyncio.gather(*lives, return_exceptions=True)
