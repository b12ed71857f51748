"""Charts: the notation alone, and drawn by the real Mermaid in a real browser."""

from __future__ import annotations

import base64
import json
import math
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from gatekeeper.report.mermaid import MAX_POINTS, curve_charts
from hypothesis import given, settings
from hypothesis import strategies as st

NOTATION = re.compile(
    r'%%\{init: \{"xyChart": \{"width": 760, "height": 300\}, "themeVariables": \{"xyChart": '
    r'\{"plotColorPalette": "[#0-9a-f, ]+"\}\}\}\}%%\n'
    r'xychart-beta\n  title "[^"`\n;<>|\[\]{}%#\\]+"\n'
    r'  x-axis "(step|row)" (-?[\d.]+) --> (-?[\d.]+)\n  y-axis "[\w .-]+" (-?[\d.]+) --> (-?[\d.]+)\n'
    r"((?:  line \[-?\d+(?:\.\d+)?(?:, -?\d+(?:\.\d+)?)+\]\n?){1,2})"
)


def lines_of(chart):
    match = NOTATION.fullmatch(chart)
    assert match, chart
    return [[float(v) for v in line.split(", ")] for line in re.findall(r"\[(.*)\]", match[6])], match


def drawn_points(low, high, count):
    """How many points Mermaid draws: it adds up the spacing from low while that is not past high."""
    spacing, x, drawn = (high - low) / (count - 1), low, 0
    while x <= high and drawn <= count:
        drawn, x = drawn + 1, x + spacing
    return drawn


finite = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(st.floats() | finite, max_size=300),
    start=st.floats(-1e6, 1e9),
    spacing=st.sampled_from([1.0, 10.0, 0.1, 1 / 7, 1e-3, 781.0]),
    jitter=st.floats(0, 0.9),
    name=st.text(),
    stop=st.none() | finite,
)
def test_any_curve_gives_notation_that_mermaid_takes(kit, values, start, spacing, jitter, name, stop):
    steps = [start + spacing * (i + jitter * (i % 3)) for i in range(len(values))]
    for chart in curve_charts(kit.curve(values, steps), name, stop_step=stop, stop_row=3):
        lines, match = lines_of(chart)
        assert all(2 <= len(line) <= MAX_POINTS for line in lines)
        assert len({len(line) for line in lines}) == 1
        low, high, bottom, top = (float(match[i]) for i in range(2, 6))
        assert bottom < top
        assert all(bottom <= value <= top for line in lines for value in line)
        assert drawn_points(low, high, len(lines[0])) == len(lines[0])


def test_the_rows_of_a_short_log_are_drawn_as_they_are(kit):
    values = [2.5 * 0.97**i for i in range(100)]
    lines, match = lines_of(curve_charts(kit.curve(values), "loss")[0])
    assert lines == [[pytest.approx(value, rel=1e-5) for value in values]]
    assert (match[2], match[3]) == ("0", "99")


def test_the_stop_is_a_needle_at_its_step(kit):
    (chart,) = curve_charts(kit.curve([2.0 - i / 100 for i in range(100)]), "loss", stop_step=70)
    (needle, _), match = lines_of(chart)
    assert [i for i, value in enumerate(needle) if value > min(needle)] == [70]
    assert needle[70] == float(match[5])
    assert "(red: stopped at step 70)" in chart


def test_a_stop_on_nan_is_marked_at_the_last_finite_value_and_says_so(kit):
    curve = kit.curve([2.0 - i / 100 for i in range(60)] + [math.nan] * 5)
    (chart,) = curve_charts(curve, "loss", stop_step=60)
    (needle, _), _ = lines_of(chart)
    assert needle[-1] > needle[-2]
    assert "stopped at step 60, last point at 59" in chart


def test_gaps_split_the_chart(kit):
    hole = [1.0] * 10 + [math.inf] * 3 + [2.0] * 10 + [math.nan]
    charts = curve_charts(kit.curve(hole), "loss", stop_step=23)
    assert [lines_of(chart)[1].group(2, 3) for chart in charts] == [("0", "9"), ("13", "22")]
    assert ["stopped" in chart for chart in charts] == [False, True]
    many = [1.0, 2.0, math.nan] * 30
    assert len(curve_charts(kit.curve(many), "loss")) == 3


def test_a_spike_survives_the_downsampling(kit):
    values = [1.0 if i != 77 else 9.0 for i in range(120)]
    steps = [i * 831.7 + (i % 7) * 11.3 for i in range(120)]
    lines, _ = lines_of(curve_charts(kit.curve(values, steps), "loss")[0])
    assert max(lines[0]) == 9.0


def test_without_rising_steps_the_rows_are_the_axis(kit):
    for steps in ([None, None, None], [5.0, 6.0, 2.0], [1.0, 1.0, 1.0]):
        (chart,) = curve_charts(kit.curve([3.0, 2.0, 1.0], steps), "loss", stop_step=6, stop_row=3)
        assert 'x-axis "row" 1 --> 3' in chart
        assert "stopped at row 3" in chart


def test_very_large_very_small_and_wide_values_stay_readable(kit):
    tiny = curve_charts(kit.curve([2e-8, 1e-8]), "loss")[0]
    assert 'y-axis "value in 1e-8"' in tiny
    wide = curve_charts(kit.curve([10.0**i for i in range(20)]), "loss")[0]
    assert 'y-axis "log10 of value"' in wide
    assert "e+" not in wide.split("y-axis")[1].split('"')[2]


def test_too_little_for_a_chart_gives_none(kit):
    assert curve_charts([], "loss") == []
    assert curve_charts(kit.curve([1.0]), "loss") == []
    assert curve_charts(kit.curve([math.nan] * 5), "loss") == []


# --- the real thing ---


def needs(*names: str) -> str:
    """Return the first of the programs that is here; where none may be missing, that fails and is no skip."""
    for name in names:
        if found := shutil.which(name):
            return found
    if os.environ.get("GATEKEEPER_REQUIRE_BROWSER"):
        pytest.fail(f"none of {', '.join(names)} is installed, and GATEKEEPER_REQUIRE_BROWSER is set")
    pytest.skip(f"needs {' or '.join(names)}")


@pytest.fixture(scope="session")
def mermaid_js(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pinned Mermaid, from npm, kept in the user's cache from one run of the tests to the next."""
    npm = needs("npm")
    wanted = Path(__file__).with_name("mermaid") / "package.json"
    version = json.loads(wanted.read_text())["dependencies"]["mermaid"]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sweep-gatekeeper"
    script = cache / f"mermaid-{version}.min.js"
    if not script.exists():
        folder = tmp_path_factory.mktemp("npm")
        shutil.copy(wanted, folder)
        options = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run([npm, "install", *options], cwd=folder, check=True, capture_output=True, timeout=300)
        cache.mkdir(parents=True, exist_ok=True)
        fresh = cache / f"{script.name}.{os.getpid()}"
        shutil.copy(folder / "node_modules" / "mermaid" / "dist" / "mermaid.min.js", fresh)
        fresh.replace(script)
    return script


PAGE = """<!DOCTYPE html><meta charset="utf-8"><script src="{script}"></script>
<pre id="result">nothing</pre><script type="module">
const charts = {charts};
const drawn = [];
mermaid.initialize({{startOnLoad: false, securityLevel: "strict"}});
for (const [name, text] of charts) {{
  try {{
    await mermaid.parse(text);
    const {{svg}} = await mermaid.render("c" + drawn.length, text);
    const page = new DOMParser().parseFromString(svg, "text/html");
    const lines = [...page.querySelectorAll("[class*=line-plot] path")].map(p => p.getAttribute("d"));
    const words = [...page.querySelectorAll("text")].map(t => t.textContent);
    drawn.push({{name, lines, words}});
  }} catch (fault) {{ drawn.push({{name, fault: String(fault)}}); }}
}}
document.getElementById("result").textContent = "DONE" +
  btoa(unescape(encodeURIComponent(JSON.stringify(drawn))));
</script>"""


@pytest.mark.browser
def test_mermaid_itself_draws_every_chart_whole(kit, mermaid_js, tmp_path):
    browser = needs("chromium", "chromium-browser", "google-chrome")
    ten = [2.3 * 0.9**i for i in range(10)]
    curves = {
        "ten rows": (kit.curve(ten), 9.0),
        "a hundred rows": (kit.curve([0.97**i for i in range(100)]), 60.0),
        "stopped on NaN": (kit.curve([*ten, math.nan]), 10.0),
        "a gap": (kit.curve([*ten, math.inf, *ten]), None),
        "a long log": (kit.curve([0.97**i for i in range(128)], [781.0 * i for i in range(128)]), 6e4),
        "epochs": (kit.curve([1 / (1 + i) for i in range(99)], [i / 7 for i in range(99)]), 14.0),
        "uneven": (kit.curve([1 / (1 + i) for i in range(90)], [i**1.7 for i in range(90)]), None),
        "tiny": (kit.curve([2e-8 * 0.9**i for i in range(50)]), None),
        "huge": (kit.curve([10.0 ** (i / 3) for i in range(100)]), 99.0),
        "negative": (kit.curve([-1e6 * i for i in range(100)]), None),
        "constant": (kit.curve([math.log(2)] * 50), None),
    }
    charts = [
        (name, chart)
        for name, (curve, stop) in curves.items()
        for chart in curve_charts(curve, "loss", stop_step=stop)
    ]
    charts += [(f"hostile {text!a}", curve_charts(kit.curve(ten), text)[0]) for text in kit.hostile]
    page = tmp_path / "page.html"
    data = json.dumps(charts).replace("<", "\\u003c")  # no </script> of a hostile name
    page.write_text(PAGE.format(script=mermaid_js.as_uri(), charts=data), encoding="utf-8")
    flags = [
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking",
        "--disable-component-update --disable-sync --virtual-time-budget=60000 --dump-dom",
    ]
    done = subprocess.run(
        [browser, *" ".join(flags).split(), f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    result = re.search(r"DONE([A-Za-z0-9+/=]+)", done.stdout)
    assert result, done.stdout[-2000:] + done.stderr[-2000:]
    drawn = json.loads(base64.b64decode(result[1]))
    assert len(drawn) == len(charts) >= 30
    for (name, chart), seen in zip(charts, drawn, strict=True):
        assert "fault" not in seen, (name, seen.get("fault"))
        expected, _ = lines_of(chart)
        found = [path.count("L") + path.count("M") for path in seen["lines"]]
        assert found == [len(line) for line in expected], name
        assert not any("NaN" in path or "undefined" in path for path in seen["lines"])
    titles = [seen["words"][0] if seen["words"] else "" for seen in drawn]
    assert any("red: stopped at step 60" in " ".join(seen["words"]) for seen in drawn), titles
