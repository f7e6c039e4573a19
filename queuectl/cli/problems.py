"""Everything that may go wrong for a user, as one exception: a sentence, what to do about it, and an exit code."""

from __future__ import annotations

from typing import IO, Any

import click

from queuectl.cli.text import plain


class Problem(click.ClickException):
    """Ends the command with exit code 1. ``advice`` tells the reader what to do; it goes on lines of its own."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice

    def show(self, file: IO[Any] | None = None) -> None:
        """To stderr, free of control characters: the message may quote the cluster."""
        click.echo(f"error: {plain(self.message)}", file=file, err=file is None)
        for line in self.advice.splitlines():
            click.echo(plain(line), file=file, err=file is None)


class Usage(Problem):
    """Wrong arguments or a wrong file: exit code 2, as for all wrong usage."""

    exit_code = 2
