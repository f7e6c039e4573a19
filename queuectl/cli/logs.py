"""Log lines on stderr: one JSON object each, for machines first; or plain text for people at a terminal."""

from __future__ import annotations

import json
import logging
import sys

from queuectl.cli.text import json_safe, plain
from queuectl.contract.times import to_wire

_OWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_LEVELS = {"WARNING": "warn", "CRITICAL": "error"}


def _time(record: logging.LogRecord) -> str:
    return to_wire(round(record.created * 1000))


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """What was given as ``extra=``: gang, round, member, node, step ..."""
    return {key: value for key, value in vars(record).items() if key not in _OWN}


class JsonLines(logging.Formatter):
    """``{"time": …, "level": "info", "logger": …, "msg": …, "gang": …, "round": …}``; an exception as ``exception``.

    A field of ``extra`` never replaces one of ours: it is written with an underscore behind its name.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line; never raises for what cannot be encoded."""
        line: dict[str, object] = {
            "time": _time(record),
            "level": _LEVELS.get(record.levelname, record.levelname.lower()),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        for key, value in _fields(record).items():
            line[f"{key}_" if key in line else key] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json_safe(json.dumps(line, ensure_ascii=False, default=str)).replace("\n", "\\n")


class TextLines(logging.Formatter):
    """``10:00:00.123 INFO  admit gang=… round=1``; an exception follows on its own lines."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the lines of an exception."""
        fields = "".join(f" {key}={plain(str(value))}" for key, value in _fields(record).items())
        line = f"{_time(record)[11:23]} {record.levelname:<7} {plain(record.getMessage())}{fields}"
        if record.exc_info:
            trace = self.formatException(record.exc_info).splitlines()
            line = "\n".join([line, *("  " + plain(one) for one in trace)])
        return line


def start(form: str) -> None:
    """Send all log records to stderr, in ``json`` or ``text``; only warnings of other libraries."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("queuectl").setLevel(logging.INFO)
    logging.captureWarnings(capture=True)
