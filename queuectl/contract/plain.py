"""Manifests as YAML that people read: no anchors, and every long text on one line."""

from __future__ import annotations

from typing import Any

import yaml


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is the library's
        return True


def documents(objects: list[dict[str, Any]]) -> str:
    """All objects, separated by ``---``."""
    return yaml.dump_all(objects, Dumper=_Plain, sort_keys=False, width=4096, allow_unicode=True)
