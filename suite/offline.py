"""asv's pages without a network: the scripts that they load from elsewhere, put beside them.

`offline.zip` holds those scripts, from npm packages that `manifest.json` in it names with their licences, by the
address that asv's page asks for. Where asv states a file's hash and the package holds that very file, a test compares
them; Flot and the sorting of tables are the same libraries in the packages' own builds.
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

ARCHIVE = Path(__file__).with_name("offline.zip")
FOLDER = "offline"
"""Where the scripts go, below the pages."""
_LOADED = re.compile(
    r'(?P<before><(?:script|link)\b[^>]*?\b(?:src|href)=")(?P<address>https?://[^"]+)(?P<after>"[^>]*>)'
)
_ONLY_ELSEWHERE = re.compile(r'\s(?:integrity|crossorigin|referrerpolicy)="[^"]*"')


def make_offline(html: Path) -> tuple[str, ...]:
    """Rewrites asv's `index.html` in a folder and adds the scripts. Returns the addresses that it still loads.

    There are some where asv is newer than the archive and asks for other files.
    """
    index = html / "index.html"
    page = index.read_text(encoding="utf-8")
    left: list[str] = []
    with zipfile.ZipFile(ARCHIVE) as archive:
        known = json.loads(archive.read("manifest.json"))

        def beside(found: re.Match[str]) -> str:
            entry = known.get(found["address"])
            if entry is None:
                left.append(found["address"])
                return found[0]
            after = _ONLY_ELSEWHERE.sub("", found["after"])
            return f"{found['before']}{FOLDER}/{entry['file']}{after}"

        rewritten = _LOADED.sub(beside, page)
        archive.extractall(html / FOLDER)
    index.write_text(rewritten, encoding="utf-8")
    return tuple(left)
