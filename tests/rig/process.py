"""Child processes of the rig: started in their own group, logged to a file, ended by process id, never left behind.

Two nets catch a run that ends badly: ``atexit`` for an ordinary end, and a guard (a tiny Python process that reads a
pipe from us) for a run that is killed: when the pipe closes without a word, it kills what is still registered and
removes the folders given to it (etcd's data may lie in memory, so a leftover folder is a leak).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

TAIL = 30  # lines of a log that an error shows: a Go panic's first page, or the last retries of a client
TERM_SECONDS = 10.0  # SIGTERM to SIGKILL; the API server's own shutdown needs about 1 s here

# "+pid" and "-pid" register and forget a process group, "d path" a folder to remove. It ignores the terminal's Ctrl-C
# (own session), and it ends when the pipe does.
_GUARD = """
import os, shutil, signal, sys
pids, folders = set(), set()
for line in sys.stdin:
    line = line.rstrip("\\n")
    if line[0] == "+": pids.add(int(line[1:]))
    elif line[0] == "-": pids.discard(int(line[1:]))
    elif line[0] == "d": folders.add(line[2:])
    elif line[0] == "f": folders.discard(line[2:])
for pid in pids:
    try: os.killpg(pid, signal.SIGKILL)
    except OSError: pass
for folder in folders: shutil.rmtree(folder, ignore_errors=True)
"""


class RigError(Exception):
    """The rig could not do what was asked; the message names the program and shows the end of its log."""


class _Guard:
    """The guard process of this interpreter, started at the first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipe = -1
        self._owner = 0

    def tell(self, line: str) -> None:
        with self._lock:
            if self._owner != os.getpid():  # a fork has no guard yet
                end, self._pipe = os.pipe()  # not inherited: only our own end closes it
                child = subprocess.Popen([sys.executable, "-S", "-c", _GUARD], stdin=end, start_new_session=True)
                child.returncode = 0  # it outlives us on purpose: no "still running" warning from the finalizer
                os.close(end)
                self._owner = os.getpid()
            with contextlib.suppress(BrokenPipeError):
                os.write(self._pipe, (line + "\n").encode())


_guard = _Guard()


class Folder:
    """A folder that is removed at :meth:`remove`, at exit, and also when this process is killed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        _guard.tell(f"d {path}")
        atexit.register(self.remove)

    def remove(self) -> None:
        """Remove the folder and all that is in it; no error when it is gone already."""
        atexit.unregister(self.remove)
        shutil.rmtree(self.path, ignore_errors=True)
        _guard.tell(f"f {self.path}")


class Process:
    """One child: ``argv`` started at once, output appended to ``log``. Raises RigError when it cannot be started."""

    def __init__(
        self, name: str, argv: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        self._argv = [str(argument) for argument in argv]
        self._environment = environment
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with log.open("ab") as output:
                self._child = subprocess.Popen(
                    self._argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=None if environment is None else {**os.environ, **environment},
                )
        except OSError as error:
            raise RigError(f"{name}: cannot start: {error}") from error
        _guard.tell(f"+{self.pid}")
        atexit.register(self.stop)

    @property
    def pid(self) -> int:
        """The process id, which is also its process group."""
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs, else its exit code (negative: the signal that ended it)."""
        return self._child.poll()

    def again(self) -> Process:
        """A new child with the same command line, its output appended to the same log."""
        return Process(self.name, self._argv, self.log, self._environment)

    def tail(self, lines: int = TAIL) -> str:
        """The last lines of its log, or a note that there is none."""
        try:
            text = self.log.read_text(errors="replace")
        except OSError:
            return "(no log)"
        return "\n".join(line[:1000] for line in text.splitlines()[-lines:]) or "(empty log)"

    def failure(self, what: str) -> RigError:
        """An error that says what went wrong with this process, with its exit code and the end of its log."""
        state = "still running" if self.returncode is None else f"exited with {self.returncode}"
        return RigError(f"{self.name}: {what} ({state}); log {self.log}:\n{self.tail()}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its whole group (SIGSTOP and SIGCONT pause and resume it); no error when it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def wait(self, seconds: float) -> int:
        """Wait for its end and return the exit code. Raises RigError when it still runs after ``seconds``."""
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self.failure(f"did not end within {seconds:g} s") from None

    def terminate(self) -> None:
        """Ask it to end (SIGTERM) without waiting, so that several can end at the same time."""
        self.signal(signal.SIGTERM)

    def stop(self, seconds: float = TERM_SECONDS) -> float:
        """End it: SIGTERM, then SIGKILL to the group after ``seconds``. Returns how long that took, in seconds."""
        started = time.monotonic()
        self.terminate()
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self._child.wait()
        _guard.tell(f"-{self.pid}")
        atexit.unregister(self.stop)
        return time.monotonic() - started
