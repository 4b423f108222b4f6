"""asv's pages load nothing from a network, and a browser draws them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import asv
import pytest

from gemmgate.suite.offline import ARCHIVE, make_offline
from tests.browser import needs_chromium, shown
from tests.histories import NAME
from tests.published import Publish, publish, repository  # noqa: F401  fixtures

ASV = Path(asv.__file__).parent / "www"


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and keeps quiet about it."""

    def log_message(self, *_: object) -> None:
        pass


def test_packages_hold_what_asv_asks_for() -> None:
    """Of the files for which asv states a hash, those that their packages hold as they are have that hash."""
    page = (ASV / "index.html").read_text()
    same = []
    with zipfile.ZipFile(ARCHIVE) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        for address, kind, digest in re.findall(r'="(https://[^"]+)" integrity="(sha\d+)-([^"]+)"', page):
            content = archive.read(manifest[address]["file"])
            if base64.b64encode(hashlib.new(kind, content).digest()).decode() == digest:
                same.append(manifest[address]["package"].partition("@")[0])
    assert sorted(same) == ["blueimp-md5", "bootstrap", "bootstrap", "flot-orderbars", "jquery"]


def test_every_file_has_a_licence() -> None:
    """Each package is named with its licence, and the archive holds nothing else."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        licences = archive.read("LICENSES.txt").decode()
        names = set(archive.namelist())
    assert names == {entry["file"] for entry in manifest.values()} | {"manifest.json", "LICENSES.txt"}
    assert all(entry["package"] in licences and entry["licence"] == "MIT" for entry in manifest.values())


def test_page_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """asv's page then names only files beside it, and without hashes; what is not known stays and is named."""
    shutil.copy(ASV / "index.html", tmp_path)
    assert make_offline(tmp_path) == ()
    page = (tmp_path / "index.html").read_text()
    loaded = re.findall(r'<(?:script|link)[^>]*?(?:src|href)="([^"]+)"', page)
    assert not [name for name in loaded if name.startswith("http")]
    assert "integrity=" not in page
    assert len([name for name in loaded if name.startswith("offline/") and (tmp_path / name).is_file()]) == 10
    (tmp_path / "index.html").write_text('<script src="https://example.org/new.js"></script>')
    assert make_offline(tmp_path) == ("https://example.org/new.js",)


@needs_chromium
def test_browser_draws_asv_pages(publish: Publish, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    """Chromium, which reaches this machine alone, shows asv's list of benchmarks and draws the graph of one."""
    assert publish() == 0, capsys.readouterr().err
    handler = partial(Quiet, directory=str(tmp_path / "results" / "html"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/index.html"
        unreachable = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        overview = shown(address, tmp_path / "profile", unreachable)
        graph = shown(f"{address}#{NAME}", tmp_path / "profile", unreachable)
    finally:
        server.shutdown()
        server.server_close()
    assert "track_seconds" in overview
    assert 'class="flot-base"' in graph
