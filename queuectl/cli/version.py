"""``queuectl version``."""

from __future__ import annotations

import click

from queuectl import __version__


@click.command("version")
def command() -> None:
    """Print the version."""
    click.echo(f"queuectl {__version__}")
