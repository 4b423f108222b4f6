"""Which commit, or which version, made a case slower: halving, with paired blocks as the judge of every step.

Git chooses the commits, in a worktree of its own, so the checkout that one works in stays as it is.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gemmgate.suite.duets import Answer
from gemmgate.suite.errors import CannotMeasureError, UsageError

Judge = Callable[[str], Answer]
"""Whether a commit or version is slower than the good end."""
Tell = Callable[[str], object]


@dataclass(frozen=True)
class Culprit:
    """`candidates` holds the first bad one; more than one where steps in between could not be judged."""

    candidates: tuple[str, ...]
    asked: int

    @property
    def is_found(self) -> bool:
        return len(self.candidates) == 1


def first_bad(names: Sequence[str], judge: Judge, tell: Tell = lambda said: None) -> Culprit:
    """Of names in order, the first of which is good and the last bad, the first bad one.

    What cannot be judged is passed over, and stays a candidate where nothing around it tells.
    """
    good, bad, asked = 0, len(names) - 1, 0
    unclear: set[int] = set()
    while True:
        between = [i for i in range(good + 1, bad) if i not in unclear]
        if not between:
            return Culprit(tuple(names[good + 1 : bad + 1]), asked)
        middle = between[len(between) // 2]
        answer = judge(names[middle])
        asked += 1
        tell(f"{names[middle]}: {_SAID[answer]}, {bad - good - 1} left")
        if answer == "yes":
            bad = middle
        elif answer == "no":
            good = middle
        else:
            unclear.add(middle)


def first_bad_commit(root: Path, good: str, bad: str, judge: Judge, tell: Tell = lambda said: None) -> Culprit:
    """The same over the main line between two commits of the repository at `root`, on which a merge is one step.

    Raises `UsageError` where git does not know them, or `good` is no ancestor of `bad`.
    """
    good, bad = check_ends(root, good, bad)
    with tempfile.TemporaryDirectory(prefix="gemmgate-bisect-") as folder:
        tree = Path(folder) / "tree"
        _git(root, "worktree", "add", "--quiet", "--detach", str(tree), bad)
        try:
            said = _git(tree, "bisect", "start", "--first-parent", bad, good)
            asked = 0
            while not (done := _finished(said)):
                commit = _git(tree, "rev-parse", "HEAD")
                answer = judge(commit)
                asked += 1
                left = re.search(r"(\d+) revisions? left", said)
                subject = _git(tree, "log", "-1", "--format=%h %s")
                tell(f"{subject}: {_SAID[answer]}{f', {left[1]} left' if left else ''}")
                said = _git(tree, "bisect", _WORDS[answer], ok=(0, 2))
            return Culprit(done, asked)
        finally:
            with suppress(CannotMeasureError):
                _git(root, "worktree", "remove", "--force", str(tree))


def check_ends(root: Path, good: str, bad: str) -> tuple[str, str]:
    """The hashes of both. Raises `UsageError` where git does not know them, or `good` is no ancestor of `bad`."""
    good, bad = _commit(root, good), _commit(root, bad)
    if good == bad:
        raise UsageError(f"Both ends are {good[:10]}: there is nothing in between.")
    if _git(root, "merge-base", good, bad, ok=(0, 1)) != good:
        raise UsageError(f"{good[:10]} is no ancestor of {bad[:10]}: name an older good commit of the same line.")
    return good, bad


_SAID = {"yes": "slower", "no": "not slower", "unclear": "cannot be judged"}
_WORDS = {"yes": "bad", "no": "good", "unclear": "skip"}
_FOUND = re.compile(r"^([0-9a-f]{40}) is the first '?bad'? commit", re.MULTILINE)
_SKIPPED = re.compile(r"^([0-9a-f]{40})$", re.MULTILINE)


def _finished(said: str) -> tuple[str, ...]:
    """The commits that git names at its end; nothing while it goes on."""
    found = _FOUND.findall(said)
    if found or "only 'skip'ped commits left" not in said:
        return tuple(found)
    return tuple(_SKIPPED.findall(said))


def _commit(root: Path, name: str) -> str:
    found = _run(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").stdout.strip()
    if not found:
        raise UsageError(f"git in {root} knows no commit '{name}'. In a shallow clone, fetch the history first.")
    return found


def _git(root: Path, *arguments: str, ok: Sequence[int] = (0,)) -> str:
    done = _run(root, *arguments)
    if done.returncode not in ok:
        raise CannotMeasureError(f"git {' '.join(arguments[:2])} failed in {root}: {done.stderr.strip()}")
    return done.stdout.strip()


def _run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    english = {**os.environ, "LC_ALL": "C"}  # what git says at the end is read
    return subprocess.run(
        ["git", "-C", str(root), *arguments], env=english, capture_output=True, text=True, check=False
    )
