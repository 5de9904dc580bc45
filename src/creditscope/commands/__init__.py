"""The commands, one file each. Importing them imports no torch; each imports what it uses when it runs."""

from creditscope.registry import COMMANDS

register_command = COMMANDS.register

__all__ = ["COMMANDS", "register_command"]
