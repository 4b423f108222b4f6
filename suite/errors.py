"""What happened, where, and what to do next; and the exit code that says so to a script.

Exit codes: 0 pass, 1 slower, broken or missing, 2 usage or unreadable input, 3 could not judge.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

PASS, REGRESSION, USAGE, UNJUDGED = 0, 1, 2, 3


class GemmgateError(Exception):
    """A failure with a sentence for a person and an exit code for a script."""

    exit_code = UNJUDGED


class UsageError(GemmgateError):
    """What was asked for does not exist or makes no sense: the message lists what does."""

    exit_code = USAGE


class UnreadableError(GemmgateError):
    """A file is truncated, of another schema, or not ours."""

    exit_code = USAGE


class CannotMeasureError(GemmgateError):
    """Everything was asked for rightly, and still nothing could be measured."""

    exit_code = UNJUDGED


def unknown(noun: str, asked: str, known: Iterable[str], *, most: int = 24) -> UsageError:
    """An error for a name that nothing has: the nearest names first, then all that exist (at most `most`)."""
    names = sorted(set(known))
    near = get_close_matches(asked, names, n=3, cutoff=0.5)
    listed = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return UsageError(f"No {noun} matches '{asked}'.{hint} Known: {listed or 'none'}.")
