"""The configuration file of ``queuectl run``: one YAML object, every field with a default."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from queuectl.contract.home import NAMESPACE
from queuectl.model.settings import Settings

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


class InvalidConfiguration(ValueError):
    """The file cannot be used; the message names the field and what is right."""


def milliseconds(value: Any) -> int:
    """``"60s"``, ``"1h30m"``, ``"250ms"`` → milliseconds. Raises ValueError; a bare number has no unit and is refused."""
    if isinstance(value, str) and re.fullmatch(r"(\d{1,9}(ms|[smh]))+", value):
        return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)(ms|[smh])", value))
    raise ValueError('must be a duration with a unit, as "60s", "15m" or "1h30m"')


Duration = Annotated[int, BeforeValidator(milliseconds), Field(json_schema_extra={"type": "string"})]


class Configuration(BaseModel):
    """What an operator may set. Durations are text with a unit (``60s``)."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True, frozen=True)

    bind_timeout: Duration = 60_000
    """No progress for this long after the last release, with a member still unbound: the gang is given back."""
    start_timeout: Duration = 900_000
    """From all bound to all started (image pulls, volumes)."""
    backoff: Duration = 30_000
    """Wait after the first give-back; doubles with each."""
    backoff_limit: Duration = 3_600_000
    """The wait never doubles beyond this."""
    max_requeues: Annotated[int, Field(ge=0, le=1000)] = 5
    """Given back more often than this, a gang is deactivated until it is edited or requeued by hand."""
    lease_duration: Duration = 15_000
    """How long the others wait for a leader that went silent; whole seconds, at least 2."""
    lease_namespace: str = NAMESPACE
    """Namespace of the Lease; the policies must know it too: `queuectl crds --namespace`."""
    fence_grace: Duration = 1_000
    """Wait after a new leader's fence holds, for API servers that learn of the Lease later than the one that was asked."""
    in_flight: Annotated[int, Field(ge=1, le=256)] = 16
    """Writes on their way at once."""
    blocker_interval: Duration = 30_000
    """A waiting gang's reason is written to its status at most this often."""
    queue_status_interval: Duration = 10_000
    """A queue's status is written at most this often."""
    stale_after: Duration = 60_000
    """Nothing is decided on a view of the cluster that has been cut off for longer than this."""

    @property
    def settings(self) -> Settings:
        """The engine's part of it."""
        return Settings(
            bind_timeout=self.bind_timeout,
            start_timeout=self.start_timeout,
            backoff=self.backoff,
            backoff_limit=self.backoff_limit,
            max_requeues=self.max_requeues,
        )


def load(path: Path | None) -> Configuration:
    """The configuration in a YAML file; the defaults when there is none. Raises InvalidConfiguration."""
    if path is None:
        return Configuration()
    try:
        found = yaml.safe_load(path.read_text())
    except OSError as problem:
        raise InvalidConfiguration(f"{path}: {problem.strerror or problem}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as problem:
        raise InvalidConfiguration(f"{path}: {problem}") from None
    if not isinstance(found, dict | None):
        raise InvalidConfiguration(f"{path}: must be a mapping of settings, as `bindTimeout: 60s`")
    try:
        return Configuration.model_validate(found or {})
    except ValidationError as problem:
        lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg'].removeprefix('Value error, ')}" for e in problem.errors()]
        raise InvalidConfiguration(f"{path}: " + "; ".join(lines)) from None
