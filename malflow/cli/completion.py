"""``malflow completion``: print what makes a shell complete commands, options and files."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from malflow.cli.exits import CommandError, Exit

__all__ = ["completion"]

_HELP = """Print the shell completion script.

\b
bash:  eval "$(malflow completion bash)"     in ~/.bashrc
zsh:   eval "$(malflow completion zsh)"      in ~/.zshrc
fish:  malflow completion fish | source      in ~/.config/fish/config.fish
"""


@click.command(help=_HELP, short_help="Print the completion of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the shell completion script."""
    kind = get_completion_class(shell)
    if kind is None:
        raise CommandError(f"there is no completion for {shell}", Exit.USAGE)
    click.echo(kind(ctx.find_root().command, {}, "malflow", "_MALFLOW_COMPLETE").source())
