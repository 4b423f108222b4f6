"""Which commit a run is filed under, with git and without."""

import subprocess

import pytest

from gemmgate.suite.commits import describe_commit
from gemmgate.suite.errors import UsageError


def _git(folder, *arguments):
    subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository without commits."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    root = tmp_path / "check out"
    (root / "kernels").mkdir(parents=True)
    (root / "pyproject.toml").touch()
    _git(root, "init", "-q")
    return root


def _commit(root):
    _git(root, "add", "-A")
    _git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first")


def test_a_clean_and_a_dirty_tree(checkout):
    """The full hash of the head; a change of what is measured makes it dirty, one elsewhere does not."""
    _commit(checkout)
    clean = describe_commit(checkout)
    assert len(clean.name) == 40
    assert not clean.dirty
    (checkout / "notes").touch()
    assert describe_commit(checkout) == clean
    (checkout / "kernels" / "new.py").touch()
    assert describe_commit(checkout).dirty


def test_an_unknown_commit_lists_the_newest(checkout):
    """A name that git does not know is an error with the names that it knows."""
    _commit(checkout)
    with pytest.raises(UsageError, match=r"does not know commit 'nope'.*\(first\)"):
        describe_commit(checkout, "nope")


def test_a_repository_without_commits_takes_a_name(checkout):
    """Where git has nothing to say, the error asks for a name, and a name is taken as it is."""
    with pytest.raises(UsageError, match="--commit <name>"):
        describe_commit(checkout)
    assert describe_commit(checkout, "abc").name == "abc"


def test_git_says_why_it_does_not_work(checkout, monkeypatch):
    """A checkout that another user owns is refused in git's own words; a name that is passed serves there too."""
    _commit(checkout)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(UsageError, match="dubious ownership"):
        describe_commit(checkout)
    assert describe_commit(checkout, "abc").name == "abc"


@pytest.mark.parametrize("name", ["../../elsewhere", "a b", "x" * 41])
def test_a_name_must_be_one_of_a_file(tmp_path, name):
    """A name that git does not vouch for becomes part of a file's name, so it holds nothing that a path would read."""
    with pytest.raises(UsageError, match="no name for a commit"):
        describe_commit(tmp_path, name)
