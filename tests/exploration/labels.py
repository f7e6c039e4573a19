"""Runs for people: one line a step."""

from __future__ import annotations

from queuectl.control.steps import Step
from tests.exploration import promises, surroundings
from tests.exploration.explorer import Explorer, Move, State


def label(explorer: Explorer, state: State, move: Move) -> str:
    """What happens, in one line. ``state`` is the one before."""
    verb, *what = move
    match verb, what:
        case "commit", [int(number), int(index)]:
            write, _ = state.procs[number].flights[index]
            done = f"{_verdict(explorer, state, write)} {_write(explorer, write)}"
            return f"the API server {done} of {_who(explorer, state, number)}"
        case "late", [int(index)]:
            write = state.lost[index]
            return f"late, the API server {_verdict(explorer, state, write)} {_write(explorer, write)}"
        case "answer", [int(number), int(index)]:
            write, answer = state.procs[number].flights[index]
            said = explorer.parts.said(answer)
            heard = f"failed: {said}" if isinstance(said, Exception) else "done"
            return f"{_who(explorer, state, number)} hears of {_write(explorer, write)}: {heard}"
        case "see", [int(number), int(kind)]:
            seen = explorer.parts.events[state.procs[number].streams[kind][0]]
            return f"{_who(explorer, state, number)} sees: {seen.kind.kind} {seen.verb.lower()}"
        case "decide", [int(number)]:
            return f"{_who(explorer, state, number)} decides{_sends(explorer, state, move)}"
        case "crash", [int(number)]:
            return f"{_who(explorer, state, number)} crashes"
        case (("timeout" | "refuse"), [int(number), int(index)]):
            write, _ = state.procs[number].flights[index]
            how = "the connection is reset under" if verb == "timeout" else "a policy refuses"
            return f"{how} {_write(explorer, write)} of {_who(explorer, state, number)}"
        case (("start" | "takeover"), []):
            return f"controller {explorer.fence(state) + 1} takes the Lease and reads everything"
        case (("hold" | "wake"), _):
            how = "from now on is held up" if verb == "hold" else "goes on"
            return f"{' '.join(map(str, what)) or 'everything'}: {how}"
        case _:
            return " ".join(map(str, what))


def _who(explorer: Explorer, state: State, number: int) -> str:
    return f"controller {explorer.parts.minds[state.procs[number].mind].fence}"


def _write(explorer: Explorer, number: int) -> str:
    write = explorer.parts.writes[number]
    where = ""
    if write.step in (Step.RELEASE, Step.ASK, Step.EXTRA):
        where = f" to {surroundings.place({'spec': write.body['spec']})}"
    if write.step is Step.RECORD:
        found = promises.slots(write.body["status"]["admission"])
        where = f" ({', '.join(f'{slot} on {node}' for slot, node in found.items())})"
    return f"{explorer.parts.named(number)}{where}"


def _verdict(explorer: Explorer, state: State, write: int) -> str:
    said = explorer.parts.said(explorer.parts.happens(state.cluster, write).answer)
    return f"refuses ({said})" if isinstance(said, Exception) else "carries out"


def _sends(explorer: Explorer, state: State, move: Move) -> str:
    """What goes out with a decision."""
    before = {flight for proc in state.procs for flight in proc.flights}
    after, _ = explorer.after(state, move)
    sent = [write for proc in after.procs for write, answer in proc.flights if (write, answer) not in before]
    return f" and sends {', '.join(_write(explorer, write) for write in sent)}" if sent else ""
