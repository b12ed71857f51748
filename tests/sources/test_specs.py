# ruff: noqa: E501 - trees of file names stand on one line
"""From a spec to sources: paths, directories, standard input, plugins, and what is refused."""

import importlib
import json
import multiprocessing
import os
import subprocess
import sys
import textwrap

import pytest
from gatekeeper.errors import GatekeeperError, MissingExtra, SourceError
from gatekeeper.sources import SourceOptions, open_source, specs
from hypothesis import given, settings
from hypothesis import strategies as st

ROW = '{"step": 1, "loss": 0.5}\n'


def names(sources, root):
    return [os.path.relpath(source.name, root) for source in sources]


@pytest.fixture
def tree(tmp_path):
    def make(*paths, content=ROW):
        for path in paths:
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        return tmp_path

    return make


def test_a_directory_stands_for_the_logs_in_it(tree):
    root = tree(
        "b.jsonl", "run1/metrics.csv", "run1/model.json", "run1/data.txt", "run2/train.log", "c.jsonl.gz"
    )
    tree(".hidden/x.jsonl", "venv/y.jsonl", ".z.jsonl", "notes.txt", "config.json", "weights.bin", "train.py")
    assert names(open_source(str(root)), root) == [
        "b.jsonl",
        "c.jsonl.gz",
        "run1/metrics.csv",
        "run2/train.log",
    ]


def test_a_ray_trial_is_one_source(tree):
    root = tree(
        "trial_a/result.json",
        "trial_a/progress.csv",
        "trial_a/params.json",
        "trial_a/events.out.tfevents.1.h",
    )
    assert names(open_source(str(root)), root) == ["trial_a/result.json"]


def test_of_the_checkpoints_of_one_run_the_newest_state_is_taken(tree):
    root = tree(
        "run/checkpoint-500/trainer_state.json", "run/checkpoint-1000/trainer_state.json", content="{}"
    )
    tree("run/checkpoint-1500/optimizer.pt")
    assert names(open_source(str(root)), root) == ["run/checkpoint-1000/trainer_state.json"]
    tree("run/trainer_state.json", content="{}")
    assert names(open_source(str(root)), root) == ["run/trainer_state.json"]


def test_a_directory_without_logs_is_an_error(tree):
    root = tree("readme.txt", "model.json")
    with pytest.raises(SourceError, match="holds no metrics log: give"):
        open_source(str(root))
    tree("lr-0.1.csv", content="x,y\n1,2\n")
    with pytest.raises(
        SourceError, match=r"holds no metrics log of a known name \(lr-0.1.csv is none\): give"
    ):
        open_source(str(root))


def test_a_table_with_a_metric_is_a_log_whatever_its_name(tree):
    root = tree("good.jsonl", content='{"step": 1, "loss": 2.0}\n')
    tree("lr-0.3.csv", content="step,loss\n1,2.0\n2,nan\n")
    tree("data.csv", content="name,width,height\na,1,2\n")
    assert names(open_source(str(root)), root) == ["good.jsonl", "lr-0.3.csv"]


@pytest.mark.parametrize("spec", ["no/such.csv", "nothing", "", "a\0b", "x" * 5000, "../gone/train.log"])
def test_what_does_not_exist_names_both_readings(spec):
    with pytest.raises(
        GatekeeperError, match=r"neither a file or directory here .* nor a run.*entity/project/run_id"
    ):
        open_source(spec)


def test_binary_files_are_refused(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(b"\x80\x02\x00\x00torch" * 50)
    with pytest.raises(SourceError, match="is binary"):
        list(open_source(str(path))[0].rows())


def test_an_existing_path_wins_over_every_other_reading(tree, monkeypatch):
    root = tree("ssh:/host/a.jsonl", "entity/project/run1", "-x.jsonl")
    monkeypatch.chdir(root)
    for spec in ("ssh://host/a.jsonl", "entity/project/run1", "-x.jsonl"):
        assert [row.step for row in open_source(spec)[0].rows()] == [1]


def test_permission_denied(tmp_path):
    """In a child that is no root, who may read everything."""
    path = tmp_path / "a.jsonl"
    path.write_text(ROW)
    path.chmod(0)

    def child(pipe):
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        try:
            list(open_source(str(path))[0].rows())
        except SourceError as error:
            pipe.send(str(error))
        else:
            pipe.send("it was read")

    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=child, args=(there,))
    process.start()
    assert here.poll(30)
    assert "permission denied" in here.recv()
    process.join()


STDIN = textwrap.dedent(
    """
    from gatekeeper.sources import open_source
    for row in open_source("-")[0].rows():
        print(row.step, sorted(row.metrics.items()), flush=True)
    """
)


def start_reader():
    return subprocess.Popen(
        [sys.executable, "-c", STDIN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b'{"step": 1, "loss": 0.5}\n', b'{"step": 2, "loss": 0.25}\n'),
        (b"step,loss\n1,0.5\n", b"2,0.25\n"),
        (b"step 1: loss 0.5\n", b"step 2: loss 0.25\n"),
        (b"  1/10 [..] - ETA: 1s - loss: 9\rstep=1 loss=0.5\r", b"step=2 loss=0.25\r"),
    ],
)
def test_standard_input_streams_live(first, second):
    """The second row is written only after the first has come out."""
    reader = start_reader()
    try:
        reader.stdin.write(first)
        reader.stdin.flush()
        assert reader.stdout.readline().startswith(b"1")
        reader.stdin.write(second)
        reader.stdin.flush()
        assert reader.stdout.readline().startswith(b"2")
        reader.stdin.close()
        assert reader.wait(30) == 0
    finally:
        reader.kill()
        reader.wait()
        for pipe in (reader.stdout, reader.stderr):
            pipe.close()


def test_standard_input_that_holds_nothing():
    reader = subprocess.run([sys.executable, "-c", STDIN], input=b"", capture_output=True, check=False)
    assert b"is empty" in reader.stderr


@pytest.fixture
def plugins(monkeypatch, tmp_path):
    """Register plugin modules through real entry points of a distribution on the path."""

    def register(**modules):
        info = tmp_path / "site" / "gatekeeper_test_plugins-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gatekeeper-test-plugins\nVersion: 1.0\n")
        points = "".join(f"{name} = {name}:SPEC\n" for name in modules)
        (info / "entry_points.txt").write_text(f"[{specs.ENTRY_POINTS}]\n{points}")
        for name, source in modules.items():
            (tmp_path / "site" / f"{name}.py").write_text(textwrap.dedent(source))
        monkeypatch.syspath_prepend(str(tmp_path / "site"))
        importlib.invalidate_caches()
        specs._entries.cache_clear()
        specs._warned.clear()

    yield register
    specs._entries.cache_clear()


GOOD = """
    from gatekeeper.sources import Row
    class Source:
        name, run_url, run_state, skipped, skipped_examples = "fake", "https://x", "crashed", 0, []
        def rows(self): yield Row(1, {"loss": 0.5})
    class Spec:
        file_suffixes = (".fake",)
        def matches(self, spec): return spec.startswith("fake:")
        def matches_dir(self, path): return path.name.startswith("offline-run")
        def open(self, spec, options): return [Source()]
        def open_path(self, path, options): return Source()
    SPEC = Spec()
"""


def test_plugins_open_their_specs_files_and_directories(plugins, tree):
    root = tree("run.fake", "logs/other.fake", "offline-run-1/x.bin", content="?")
    plugins(good_source_plugin=GOOD)
    for spec in ("fake:1", str(root / "run.fake"), str(root / "logs"), str(root / "offline-run-1")):
        (source,) = open_source(spec, options=SourceOptions())
        assert source.run_state == "crashed"


@pytest.mark.parametrize(
    "broken",
    [
        "raise RuntimeError('broken at import')",
        "x = 1",
        "SPEC = object()",
        """
        class Spec:
            file_suffixes = 7
            def matches(self, spec): raise ValueError("broken at use")
            def matches_dir(self, path): raise ValueError("broken at use")
        SPEC = Spec()
        """,
    ],
)
def test_a_broken_plugin_breaks_nothing_else(plugins, tree, capsys, broken):
    root = tree("a.jsonl", "run.fake")
    plugins(a_broken_source_plugin=broken, good_source_plugin=GOOD)
    assert [row.step for row in open_source(str(root / "a.jsonl"))[0].rows()] == [1]
    assert open_source("fake:1")[0].run_url == "https://x"
    assert open_source(str(root / "run.fake"))[0].run_url == "https://x"
    assert len(open_source(str(root))) == 2
    with pytest.raises(GatekeeperError, match=r"neither .*a_broken_source_plugin does not work"):
        open_source("nothing")
    assert "a_broken_source_plugin does not work" in capsys.readouterr().err


def test_a_missing_extra_is_named(tree, monkeypatch):
    """tensorboard is made unimportable; uninstalling it for one test is not possible."""
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    root = tree("events.out.tfevents.1.host", content="\x18\0\0\0")
    with pytest.raises(MissingExtra, match=r"pip install 'sweep-gatekeeper\[tensorboard\]'"):
        open_source(str(root / "events.out.tfevents.1.host"))


def test_one_unreadable_log_of_a_directory_speaks_in_its_place(tree):
    root = tree("a.jsonl", "c.jsonl")
    (root / "b.jsonl").symlink_to(root / "gone.jsonl")
    first, broken, last = open_source(str(root))
    assert [len(list(source.rows())) for source in (first, last)] == [1, 1]
    with pytest.raises(SourceError, match=r"b\.jsonl does not exist"):
        list(broken.rows())


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(
        [
            "x",
            "x.jsonl",
            "x.csv",
            "x.log",
            "x.json",
            "trainer_state.json",
            "x.npz",
            "x.gz",
            "events.out.tfevents.1.h",
        ]
    ),
    content=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)),
    prefix=st.sampled_from(
        [
            b"",
            b"{",
            b"[",
            b'{"log_history": [',
            b"step,loss\n",
            b"\x1f\x8b",
            b"PK\x03\x04",
            b"\xff\xfe",
            b'{"loss": 1}\n',
        ]
    ),
    follow=st.booleans(),
)
def test_whatever_a_file_holds_it_yields_rows_or_one_sentence(
    name, content, prefix, follow, tmp_path_factory
):
    path = tmp_path_factory.mktemp("any") / name
    path.write_bytes(prefix + content)
    try:
        for source in open_source(str(path), options=SourceOptions(follow=follow)):
            for step, metrics in source.rows():
                assert step is None or isinstance(step, (int, float))
                assert all(isinstance(key, str) for key in metrics)
    except GatekeeperError as error:
        said = str(error)
    else:
        said = name
    assert name in said
    assert "\n" not in said


def test_opening_a_plain_log_imports_nothing_heavy(tree):
    root = tree("a.jsonl")
    script = (
        "import sys\nfrom gatekeeper.sources import open_source\n"
        "list(open_source(sys.argv[1])[0].rows())\n"
        "print([m for m in ('ray','wandb','tensorboard','tenacity','click','numpy','gatekeeper_wandb') if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", script, str(root / "a.jsonl")], capture_output=True, text=True, check=True
    )
    assert json.loads(out.stdout.replace("'", '"')) == []
