"""The commit that a run is filed under."""

import subprocess

import pytest

import gemmgate
from gemmgate.suite.commits import describe_commit
from gemmgate.suite.errors import UsageError


def _git(folder, *arguments):
    identity = ("-c", "user.name=Tester", "-c", "user.email=tester@example.invalid")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    """A repository of two commits, with the files that tell a checkout of ours."""
    _git(tmp_path, "init", "--quiet")
    for name in ("pyproject.toml", "kernels/one.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("first")
    for message in ("first", "second"):
        _git(tmp_path, "add", ".")
        _git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", message)
    return tmp_path


def test_a_checkout_is_at_its_head(checkout):
    """The name is the full hash of HEAD, and a clean tree is not dirty."""
    found = describe_commit(checkout)
    assert (found.name, found.dirty) == (_git(checkout, "rev-parse", "HEAD"), False)


@pytest.mark.parametrize(("path", "dirty"), [("kernels/one.py", True), ("kernels/new.py", True), ("notes.txt", False)])
def test_a_tree_is_dirty_where_what_is_measured_changed(checkout, path, dirty):
    """Changed and new files among the measured ones make it dirty, others do not."""
    (checkout / path).write_text("changed")
    assert describe_commit(checkout).dirty is dirty


@pytest.mark.parametrize("state", ["new", "committed"])
def test_a_file_set_apart_hides_nothing_else(checkout, state):
    """A table set apart, new or changed, leaves the tree clean; a changed kernel or another table does not."""
    own, other = checkout / "kernels/tuned/board.json", checkout / "kernels/tuned/other.json"
    own.parent.mkdir()
    if state == "committed":
        own.write_text("before")
        _git(checkout, "add", ".")
        _git(checkout, "commit", "--quiet", "-m", "a table")
    own.write_text("after")
    assert describe_commit(checkout).dirty
    assert not describe_commit(checkout, apart=[own, checkout.parent / "elsewhere.json"]).dirty
    for path in (other, checkout / "kernels/one.py"):
        before = path.read_text() if path.exists() else None
        path.write_text("changed")
        assert describe_commit(checkout, apart=[own]).dirty
        path.unlink() if before is None else path.write_text(before)


def test_a_short_hash_confirms_what_is_checked_out(checkout):
    """A hash that means HEAD is accepted, in any length."""
    head = _git(checkout, "rev-parse", "HEAD")
    assert describe_commit(checkout, head[:8]).name == head


def test_an_unknown_commit_is_refused_with_those_that_exist(checkout):
    """The sentence lists the newest commits with their subjects."""
    with pytest.raises(UsageError, match=r"does not know it.*\(second\)"):
        describe_commit(checkout, "no-such-branch")


def test_another_commit_than_the_one_checked_out_is_refused(checkout):
    """Kernels of HEAD are never filed under its parent."""
    with pytest.raises(UsageError, match="another commit checked out"):
        describe_commit(checkout, "HEAD~1")


@pytest.mark.parametrize("hide", ["no repository", "no commit", "no program"])
def test_without_history_the_name_must_be_passed(tmp_path, monkeypatch, hide):
    """Without a repository, a commit or git itself the error says what to pass, and what is passed is taken."""
    (tmp_path / "pyproject.toml").write_text("")
    if hide == "no commit":
        _git(tmp_path, "init", "--quiet")
    if hide == "no program":
        monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="--commit <hash or name>"):
        describe_commit(tmp_path)
    assert describe_commit(tmp_path, "0a1b2c3d").name == "0a1b2c3d"
    with pytest.raises(UsageError, match="no name for a commit"):
        describe_commit(tmp_path, "../../etc")


def test_an_installed_package_is_filed_under_its_version(tmp_path):
    """Where there is no checkout the version stands for the commit."""
    assert describe_commit(tmp_path).name == f"v{gemmgate.__version__}"


def test_git_says_why_it_does_not_work(checkout, monkeypatch):
    """A checkout that another user owns is refused in git's own words; a name that is passed serves there too."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(UsageError, match="dubious ownership"):
        describe_commit(checkout)
    assert describe_commit(checkout, "abc").name == "abc"
