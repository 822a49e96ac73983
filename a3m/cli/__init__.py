"""The command line program ``a3m``.

A subcommand is a module of this package, named in :data:`a3m.cli.command.COMMANDS`. The first line of its docstring is
its help; ``add_arguments(parser)`` says what it takes, and ``run(arguments)`` does it and answers the exit status: 0 if
all is well, 1 if it failed, 2 for arguments that make no sense, 130 after Ctrl-C.
"""

from a3m.cli.command import main

__all__ = ["main"]
