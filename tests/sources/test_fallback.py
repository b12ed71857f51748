# ruff: noqa: E501
import pytest
from gatekeeper.errors import GatekeeperError, SourceError, Unreachable
from gatekeeper.sources import FallbackSource, Row, open_with_fallback


class Server:
    """A source whose connection the test cuts: a real one of that kind needs a server that fails on command."""

    def __init__(self, name):
        self.name, self.run_url, self.run_state = name, f"https://{name}", "running"
        self.skipped, self.skipped_examples = 0, []
        self.log, self.read, self.up = [], 0, True
        self.breaks_after = None

    def rows(self):
        if not self.up:
            raise Unreachable(f"{self.name} did not answer within 60 s")
        for row in self.log[self.read :]:
            if self.breaks_after is not None and self.read >= self.breaks_after:
                raise Unreachable(f"{self.name} broke off")
            self.read += 1
            yield row


@pytest.fixture
def chain():
    servers = {name: Server(name) for name in ("a", "b", "c")}

    def opener(spec, *, options):
        return [servers[spec]]

    source = FallbackSource(["a", "b", "c"], opener=opener)
    return source, servers["a"], servers["b"], servers["c"]


def log(*steps):
    return [Row(step, {"loss": 1.0 / (step + 1)}) for step in steps]


def steps(source):
    return [row.step for row in source.rows()]


def test_the_first_way_is_read_while_it_answers(chain):
    source, a, _, _ = chain
    a.log = log(0, 1)
    assert steps(source) == [0, 1]
    assert source.used == "a"
    assert (source.run_url, source.run_state) == ("https://a", "running")


def test_the_next_way_goes_on_where_the_first_ended_and_back(chain):
    source, a, b, c = chain
    a.log, c.log = log(0, 1, 1, 2), log(0, 1, 1, 2, 3)
    assert steps(source) == [0, 1, 1, 2]
    a.up = b.up = False
    assert steps(source) == [3]
    assert source.used == "c"
    a.up = True
    a.log = log(0, 1, 1, 2, 3, 4)
    assert steps(source) == [4]
    assert source.used == "a"


def test_a_way_that_breaks_off_in_the_middle(chain):
    source, a, b, _ = chain
    a.log, a.breaks_after, b.log = log(0, 1, 2), 2, log(0, 1, 2, 3)
    assert steps(source) == [0, 1, 2, 3]


def test_rows_of_the_same_step_with_other_values_are_new(chain):
    source, a, b, _ = chain
    a.log = [Row(5, {"loss": 1.0})]
    assert len(list(source.rows())) == 1
    a.up = False
    b.log = [Row(5, {"loss": 1.0}), Row(5, {"val_loss": 2.0}), Row(4, {"loss": 3.0})]
    assert list(source.rows()) == [Row(5, {"val_loss": 2.0}), Row(4, {"loss": 3.0})]  # a rewind is passed on


def test_rows_without_steps_are_counted(chain):
    source, a, b, _ = chain
    a.log = [Row(None, {"loss": i}) for i in range(3)]
    b.log = [Row(None, {"loss": i}) for i in range(5)]
    assert len(list(source.rows())) == 3
    a.up = False
    assert [row.metrics["loss"] for row in source.rows()] == [3, 4]


def test_when_nothing_answers_it_says_what_was_tried(chain):
    source, a, b, c = chain
    a.up = b.up = c.up = False
    with pytest.raises(
        Unreachable, match=r"nothing answered for a; tried: a did not .*; b did not .*; c did not"
    ):
        list(source.rows())


def test_local_files_as_fallbacks(tmp_path):
    def unreachable(spec, *, options):
        if spec == "down":
            raise Unreachable("down did not answer within 60 s")
        from gatekeeper.sources import open_source

        return open_source(spec, options=options)

    path = tmp_path / "train.log"
    path.write_text("step=1 loss=0.5\n")
    source = FallbackSource(["down", str(tmp_path / "missing.csv"), str(path)], opener=unreachable)
    assert steps(source) == [1]
    source = FallbackSource(["down", str(tmp_path / "missing.csv")], opener=unreachable)
    with pytest.raises(Unreachable, match=r"tried: down did not answer.*missing\.csv"):
        list(source.rows())


def test_a_first_way_that_answers_with_an_error_is_not_replaced(tmp_path):
    good = tmp_path / "good.jsonl"
    good.write_text('{"step": 1, "loss": 0.5}\n')
    bad = tmp_path / "bad.jsonl"
    bad.write_text("")
    (source,) = open_with_fallback(str(bad), [str(good)])
    with pytest.raises(SourceError, match=r"bad\.jsonl is empty"):
        list(source.rows())
    (source,) = open_with_fallback("nothing", [str(good)])
    with pytest.raises(GatekeeperError, match="neither"):
        list(source.rows())
    assert [row.step for row in open_with_fallback(str(good), [])[0].rows()] == [1]
