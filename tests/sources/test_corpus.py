"""The pairs of raw logs and parsed rows in a folder of public logs, where one is given."""

import csv
import json
import os
from pathlib import Path

import pytest
from gatekeeper.sources import open_source

CORPUS = os.environ.get("GATEKEEPER_CORPUS")


def pairs():
    if not CORPUS:
        return []
    with (Path(CORPUS) / "raw" / "formats.csv").open() as file:
        return [(row["file"], row["parsed"]) for row in csv.DictReader(file)]


@pytest.mark.skipif(not CORPUS, reason="GATEKEEPER_CORPUS is not set: no folder of public logs to read")
@pytest.mark.parametrize(("raw", "parsed"), pairs())
def test_a_raw_log_yields_its_parsed_rows(raw, parsed):
    (source,) = open_source(str(Path(CORPUS) / "raw" / raw))
    seen = [{"step": row.step, **row.metrics} for row in source.rows()]
    expected = [json.loads(line) for line in (Path(CORPUS) / parsed).read_text().splitlines()]
    assert len(seen) == len(expected)
    for at, (got, wanted) in enumerate(zip(seen, expected, strict=True)):
        assert got.keys() == wanted.keys(), at
        # As text, so that NaN equals NaN; as floats, since 1 equals 1.0.
        assert {key: str(float(value)) for key, value in got.items()} == {
            key: str(float(value)) for key, value in wanted.items()
        }, at
