"""A gate as JUnit's XML, which most CI systems show."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from gemmgate.suite.judged import Judged
from gemmgate.suite.judgement import Judgement

_NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML document may hold."""


def gate_junit(found: Judgement) -> str:
    """A test case an item: a failure stops the change, an error could not be judged, what does not count is skipped."""
    unjudged = {comparison.row.path for comparison in found.result.unjudged}
    failed = found.is_failed
    suite = ElementTree.Element(
        "testsuite",
        name="gemmgate gate",
        tests=str(len(found.items)),
        failures=str(len(failed)),
        errors=str(len(unjudged)),
        skipped=str(sum(_is_skipped(one, found) for one in found.items)),
        timestamp=found.run.utc.rstrip("Z"),
        hostname=_clean(found.run.machine.key),
        time=f"{found.run.seconds.get('total', 0.0):.3f}",
    )
    for one in found.items:
        row = one.comparison.row
        case = ElementTree.SubElement(
            suite, "testcase", classname=_clean(f"{row.family}.{row.implementation}"), name=_clean(row.case)
        )
        title = _clean(f"{one.comparison.verdict} ({one.comparison.reason})")
        text = _clean("\n".join(filter(None, [one.comparison.sentence, one.cause, one.repro])))
        if one.path in failed:
            ElementTree.SubElement(case, "failure", message=title, type=str(one.comparison.verdict)).text = text
        elif one.path in unjudged:
            ElementTree.SubElement(case, "error", message=title, type=str(one.comparison.verdict)).text = text
        elif _is_skipped(one, found):
            ElementTree.SubElement(case, "skipped", message=_clean(f"{title}: {one.comparison.sentence}"))
        else:
            ElementTree.SubElement(case, "system-out").text = text
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _is_skipped(one: Judged, found: Judgement) -> bool:
    """Shown and not judged."""
    counted = {comparison.row.path for comparison in (*found.result.failed, *found.result.unjudged)}
    not_due = (found.times_count and one.standing == "reported") or one.comparison.reason in (
        "new",
        "not_measured",
        "cpu",
    )
    return one.path not in counted and not_due


def _clean(text: str) -> str:
    return _NO_XML.sub("?", text)
