"""Where we live in a cluster: words that every process needs, in a module that loads nothing."""

from __future__ import annotations

from typing import Final

GROUP: Final = "queuectl.io"  # of our resources, labels and annotations
NAMESPACE: Final = "queuectl-system"  # of the controller, unless an operator says otherwise
LEASE: Final = "queuectl"  # in that namespace: who leads, and the fence
USER: Final = f"system:serviceaccount:{NAMESPACE}:queuectl"
