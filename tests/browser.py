"""A page as headless Chromium shows it, from a file and without a network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

needs_chromium = pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium")
_FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --hide-scrollbars --allow-file-access-from-files
    --virtual-time-budget=60000""".split()
_ASK = """<script>
(async () => {
  while (!document.documentElement.dataset.ready) await new Promise(done => setTimeout(done, 20));
  const answer = document.createElement("pre");
  answer.id = "answer";
  answer.textContent = JSON.stringify(await (async () => { @SCRIPT@ })());
  document.body.append(answer);
})();
</script>"""


def shown(page: Path | str, profile: Path, *flags: str) -> str:
    """The document once its scripts have run, as HTML. `page` is a file or an address on this machine."""
    address = page.as_uri() if isinstance(page, Path) else page
    command = ["chromium", *_FLAGS, f"--user-data-dir={profile}", *flags, "--dump-dom", address]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def answer(page: Path, profile: Path, script: str, *, fragment: str = "") -> Any:
    """What a script returns that runs in a page once the page says `data-ready`; `fragment` is the address's."""
    asked = page.with_name(f"asked-{page.name}")
    text = page.read_text(encoding="utf-8").replace("</body>", _ASK.replace("@SCRIPT@", script) + "</body>")
    asked.write_text(text, encoding="utf-8")
    document = shown(asked.as_uri() + fragment, profile)
    found = re.search(r'<pre id="answer">(.*?)</pre>', document, re.DOTALL)
    assert found, f"{page} gave no answer:\n{document[-3000:]}"
    return json.loads(unescape(found[1]))


def violations(page: Path, profile: Path, change: str) -> dict[str, str]:
    """What axe-core finds wrong: rules, each with the first element that breaks it.

    `change` is a script that gives the page its other colours, whose contrast is checked too.
    """
    import axe_core_python

    axe = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    script = """
        const found = (await axe.run()).violations;
        @CHANGE@
        found.push(...(await axe.run({runOnly: ["color-contrast"]})).violations);
        return Object.fromEntries(found.map(one => [one.id, one.nodes[0].html + one.nodes[0].failureSummary]));"""
    return dict(answer(page, profile, axe.replace("</script", "<\\/script") + script.replace("@CHANGE@", change)))
