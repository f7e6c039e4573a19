"""The command line: one verb a file, loaded only when it is called, so that help and completion come at once."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

# verb -> (module, one line for the overview); a test holds the lines equal to those of the commands themselves
VERBS = {
    "demo": ("queuectl.cli.demo", "Watch gangs flow through queues, without a cluster."),
    "run": ("queuectl.cli.run", "Run the controller."),
    "crds": ("queuectl.cli.crds", "Print what has to be in the cluster: definitions, policies and roles."),
    "get": ("queuectl.cli.get", "List queues, gangs, nodes or pools."),
    "describe": ("queuectl.cli.describe", "Show all that is known of one queue, gang, node or pool."),
    "explain": ("queuectl.cli.explain", "Say why a gang waits and what would free it, or where it runs."),
    "requeue": ("queuectl.cli.requeue", "Ask for another try: give the gang back, or end its back-off."),
    "replay": ("queuectl.cli.replay", "Play a scenario or a job trace on the engine, in virtual time."),
    "version": ("queuectl.cli.version", "Print the version."),
}


class Verbs(click.Group):
    """A group that knows its commands by name and imports only the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is the library's
        """All verbs, in the order in which people meet them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - likewise
        """Import a verb."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(VERBS[cmd_name][0]).command
        # click's mark for lines that are kept as they are, which docstrings can only spell out.
        command.help = (command.help or "").replace("\\b\n", "\b\n")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - likewise
        """The overview, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, line) for verb, (_, line) in VERBS.items()])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def cli() -> None:
    """Gang batch queues for GPU clusters on Kubernetes.

    What reads asks the controller's JSON API (--server). What changes something uses your own kubeconfig and rights.
    """


def main() -> None:
    """Entry point of ``queuectl`` and ``kubectl-queuectl``. Exit codes: 0 done, 1 failed, 2 wrong usage."""
    plugin = Path(sys.argv[0]).name.startswith("kubectl-")
    cli.main(prog_name="kubectl queuectl" if plugin else "queuectl")


if __name__ == "__main__":
    main()
