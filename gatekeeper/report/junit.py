"""Verdicts as JUnit XML, which GitLab, Jenkins and most other CI systems show.

STOP is a failure. WAIT is an error: the check could not be carried out, and a skipped test would read as a
pass.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gatekeeper.report import RunReport
from gatekeeper.report._record import decision, findings, number, place, reason, redacted
from gatekeeper.text import shorten, strip_ansi

__all__ = ["junit_xml"]

_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MAX_SENTENCE, _MAX_NAME, _MAX_FINDINGS = 2000, 500, 50
_TAG = {"STOP": "failure", "WAIT": "error", "ERROR": "error"}


def junit_xml(reports: Sequence[RunReport]) -> str:
    """Return one test case for each judged run, in the order given; no run at all is an error."""
    words = [decision(report.record) for report in reports]
    suite = Element("testsuite", name="gatekeeper", tests=str(max(1, len(words))))
    suite.set("failures", str(words.count("STOP")))
    suite.set("errors", str(sum(_TAG.get(word) == "error" for word in words) + (not words)))
    suite.set("skipped", "0")
    for report, word in zip(redacted(reports), words, strict=True):
        _case(suite, report, word)
    if not words:
        case = SubElement(suite, "testcase", classname="gatekeeper", name="gatekeeper")
        SubElement(case, "error", type="nothing-judged", message="nothing was judged")
    root = Element("testsuites", {key: suite.get(key, "") for key in ("name", "tests", "failures", "errors")})
    root.append(suite)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _case(suite: Element, report: RunReport, word: str) -> None:
    record = report.record
    name = _clean(record.get("source") or "run", _MAX_NAME)
    case = SubElement(suite, "testcase", classname="gatekeeper", name=name)
    message = _clean(reason(record), _MAX_SENTENCE)
    details = [f"{word} {place(record)}".rstrip(), message]
    details += [
        f"{item.get('judgment')} {item.get('rule')} at step {number(item.get('step'))}: {item.get('message')}"
        for item in findings(record)[:_MAX_FINDINGS]
    ]
    text = "\n".join(_clean(line, _MAX_SENTENCE) for line in details)
    if word in _TAG:
        kind = _clean(record.get("rule") or ("no-verdict" if word == "ERROR" else "undecided"), _MAX_NAME)
        SubElement(case, _TAG[word], type=kind, message=f"{word}: {message}").text = text
    else:
        SubElement(case, "system-out").text = text


def _clean(value: object, limit: int) -> str:
    """Return one line of what XML 1.0 may hold."""
    return _NOT_XML.sub("\ufffd", shorten(" ".join(strip_ansi(value).split()), limit))
