"""Errors as people see them: one line on stderr, exit status 1, no traceback."""

from __future__ import annotations


class CliError(Exception):
    """Something the user can change; the text names it and the remedy."""

    exit_status = 1
