"""Text for terminals: nothing that strangers named can move the cursor, change colours or hide what follows.

Kubernetes refuses control characters in names, but messages, node conditions and image names are free text.
"""

from __future__ import annotations

import re

# C0 and C1 controls, DEL, soft hyphen, zero-width and bidirectional marks, line separators, byte-order mark, tags.
HOSTILE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)


def plain(text: str) -> str:
    r"""The text with every such character written out: ``\x1b``, ``\u202e``; a line break becomes ``\n``, two characters."""
    return HOSTILE.sub(_escaped, text)


def json_safe(text: str) -> str:
    r"""The same for finished JSON, where such characters occur in strings only: ``\u001b``. Line breaks stay."""
    return HOSTILE.sub(lambda match: match[0] if match[0] == "\n" else _unicode(ord(match[0])), text)


def _escaped(match: re.Match[str]) -> str:
    known = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(match[0])
    code = ord(match[0])
    return known or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


def _unicode(code: int) -> str:
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def ago(milliseconds: int) -> str:
    """A duration as kubectl writes ages: ``45s``, ``3m10s``, ``12m``, ``5h2m``, ``26h``, ``3d4h``, ``30d``, ``2y10d``."""
    seconds = max(0, milliseconds) // 1000
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _two(days // 365, "y", days % 365, "d") if days < 8 * 365 else f"{days // 365}y"


def _two(first: int, unit: str, second: int, part: str) -> str:
    return f"{first}{unit}{second}{part}" if second else f"{first}{unit}"
