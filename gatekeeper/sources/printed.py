"""What people print: counters ("Epoch 3, step 100/600") and pairs ("val loss: 0.5", "acc=0.9")."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["NUMBER", "Counters", "Counts", "number", "printed_pairs", "read_counters"]

#: A printed number, NaN and infinity included. Has no groups.
NUMBER = r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?)"

_THOUSANDS = r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d,])"
_UNIT = (
    r"(?P<unit>%|ms/step|s/step|s/it|it/s|s/iter|ms|µs|us|sec|secs|s|m|h|bpc|bpb|gib|gb|mib|mb|tok/s|k|x)?"
)
_COUNTER = re.compile(
    r"(?<![\w./])(?P<word>global[_ ]step|train[_ ]step|step|iteration|iter|itr|it|epoch|ep|update|"
    r"batch|minibatch|episode|round|total[_ ]timesteps|timesteps?|num[_ ]timesteps|frames?)s?"
    r"(?:\((?:train|val|test)\))?(?:\s*[:=#]\s*|\s+|(?=\[))[\[(]?\s*(?P<n>\d[\d,]*)(?P<float>\.\d+)?"
    r"(?:\s*/\s*(?P<total>\d+))?\s*[\])]?"
    r"(?:\s*:?\s*\[?\s*(?P<in>\d+)\s*/\s*(?P<intotal>\d+)(?:\s*\([^)]*\))?\s*\]?(?![\w.]))?"
    r"(?![\w.%]|\s*(?:ms|s|sec|seconds)\b)\s*[:,;|]?",
    re.IGNORECASE,
)
_TUTORIAL = re.compile(r"^\s*\[\s*(?P<epoch>\d+)\s*,\s*(?P<n>\d+)\s*\]")
_NANOGPT_EVAL = re.compile(r"^\s*step \d+: train loss ", re.IGNORECASE)
_EPOCHS = frozenset({"epoch", "ep", "round"})
_INNER = frozenset({"batch", "minibatch"})

_WORD = r"[A-Za-z_][A-Za-z0-9_./@^-]{0,80}"
_PAIR = re.compile(
    # Bounded and begun only where a word begins: a hostile line costs no more than a long one.
    rf"(?<![A-Za-z0-9_./@^-])(?P<name>{_WORD}(?:[ ]{_WORD}){{0,4}})"
    rf"(?:\s*(?P<sep>[:=])\s*|\s+)(?P<value>{_THOUSANDS}|{NUMBER})"
    rf"(?P<of>/\d+)?\s?{_UNIT}(?![\w.]|[-:]\d)",
    re.IGNORECASE,
)
_CHUNKS = re.compile(r"[;|\t]|,(?!\d{3}(?!\d))| - ")
_AVERAGE = re.compile(r"^\s*\(\s*[^()]*\)")
_METRIC_WORDS = frozenset(
    """loss losses acc acc1 acc5 accuracy ppl perplexity bpb bpc nll elbo reward rewards return returns score
    f1 auc auroc precision recall iou miou map map50 dice bleu rouge wer cer psnr ssim fid mse mae rmse
    top1 top5 gnorm grad_norm kl entropy success mfu""".split()  # noqa: SIM905 - a list of words reads better as words
)
_LESS = frozenset(
    """weight weights scale coef coeff coefficient type fn function ratio smoothing threshold clip clipping
    lambda target name factor""".split()  # noqa: SIM905
)
_PHASES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
    "eval": "eval",
    "evaluation": "eval",
    "dev": "dev",
}
_NO_METRICS = frozenset({"v_num", "eta", "date", "seed"})
_FILLERS = frozenset({"set", "average", "avg", "mean", "the", "current", "running", "on", "epoch"})
_SHORT = {"accuracy": "acc", **_PHASES}
_CARRIED = frozenset({"loss", "acc", "accuracy", "f1", "auc", "ppl", "perplexity", "top1", "top5", "score"})
_TALK = re.compile(
    r"\b(?:improved?|saving|saved|early stopping|restor\w+|load\w*|resum\w+|best|reached|patience|param\w*|"
    r"from|than|took|takes|every|import|def|return\s+\w+$|self|print|assert|lambda)\b|[({]\s*$|==|\w\(",
    re.IGNORECASE,
)


def number(text: str) -> float | None:
    """Return printed text as a number, or None."""
    try:
        return float(text.replace(",", "") if "," in text else text)
    except ValueError:
        return None


@dataclass(frozen=True)
class Counts:
    """The counters of one line, and the line without them."""

    epoch: float | None
    inner: float | None
    total: float | None
    rest: str
    nanogpt_eval: bool


class Counters:
    """Turns a log's counters into one step that rises.

    A counter that starts again with each epoch is carried on from where the epoch before ended; a line that
    only names its epoch, in a log that also counts steps, has the last step.
    """

    def __init__(self, declared: str | None = None) -> None:
        self._declared = declared
        self._base = 0.0
        self._inner: float | None = None
        self._epoch: float | None = None
        self._total: float | None = None
        self.last: float | None = None

    def step(self, counts: Counts) -> float | None:
        """Return the step of a line with these counters."""
        if counts.inner is None:
            if self._inner is None:
                self.last = counts.epoch
            return self.last
        if (
            self._inner is not None
            and counts.inner <= self._inner
            and counts.epoch is not None
            and self._epoch is not None
            and counts.epoch > self._epoch
        ):
            self._base += max(self._inner, self._total or 0.0)
        self._inner = counts.inner
        self._total = counts.total
        if counts.epoch is not None:
            self._epoch = counts.epoch
        self.last = self._base + counts.inner
        return self.last


def read_counters(line: str) -> Counts | None:
    """Return the step, iteration and epoch counters of a line, or None where it has none."""
    epoch = inner = total = None
    inner_is_batch = False
    tutorial = _TUTORIAL.match(line)
    if tutorial:
        return Counts(
            float(tutorial.group("epoch")), float(tutorial.group("n")), None, line[tutorial.end() :], False
        )
    found = list(_COUNTER.finditer(line))
    if not found:
        return None
    used: list[tuple[int, int]] = []
    for match in found:
        word = match.group("word").lower().replace(" ", "_")
        count = float(match.group("n").replace(",", "") + (match.group("float") or ""))
        if word in _EPOCHS:
            if epoch is not None:
                continue
            epoch = count
            if match.group("in"):
                inner, total = float(match.group("in")), float(match.group("intotal"))
        elif inner is None or (inner_is_batch and word not in _INNER):
            inner, inner_is_batch = count, word in _INNER
            total = float(match.group("total")) if match.group("total") else None
        else:
            continue
        used.append(match.span())
    return Counts(epoch, inner, total, _without(line, used), bool(_NANOGPT_EVAL.match(line)))


def _without(line: str, spans: list[tuple[int, int]]) -> str:
    """Return the line with a separator in place of each span."""
    kept, at = [], 0
    for start, end in spans:
        kept.append(line[at:start])
        at = end
    return " , ".join([*kept, line[at:]])


def printed_pairs(text: str, *, counted: bool) -> list[tuple[str, float, str]]:
    """Return (name, value, unit) for the pairs of a line; ``counted`` where the line also has a counter.

    Without a counter a line must name a metric to be taken: stdout is full of settings and talk.
    """
    found: list[tuple[str, float, str]] = []
    phase = _line_phase(text)
    named = False
    for chunk in _CHUNKS.split(text):
        if not chunk or len(chunk) < 3:
            continue
        at = 0
        while at < len(chunk):
            match = _PAIR.search(chunk, at)
            if match is None:
                break
            at = match.end()
            average = _AVERAGE.match(chunk[at:])
            if average:
                at += average.end()
            explicit = match.group("sep") is not None
            words = match.group("name").split()
            metric = _is_metric(words)
            if not explicit and not metric and not (counted and _whole(chunk, match, at)):
                continue
            if not explicit and _TALK.search(match.group("name")):
                continue
            value = number(match.group("value"))
            if value is None:
                continue
            if match.group("of"):
                whole = float(match.group("of")[1:])
                value = value / whole if whole else value
            named = named or metric
            phase, name = _name(words, phase)
            if name.lower() in _NO_METRICS:
                continue
            unit = (match.group("unit") or "").lower()
            if not explicit and name == "time" and unit:
                name = f"time_{unit}"
            found.append((name, value, unit))
    if not counted and (not named or _is_code(text)):
        return []
    if counted and not named and _TALK.search(text):
        return []
    return found


def _whole(chunk: str, match: re.Match[str], end: int) -> bool:
    """Say whether a chunk is nothing but a name and its number."""
    return not chunk[: match.start()].strip(" -*>\"'.:[(") and not chunk[end:].strip(" .:])")


def _is_metric(words: list[str]) -> bool:
    parts = [part for word in words for part in re.split(r"[_/.@-]", word.lower()) if part]
    if not parts or parts[-1] in _LESS:
        return False
    return (
        not _METRIC_WORDS.isdisjoint(parts)
        or words[-1].lower() in _METRIC_WORDS
        or "grad_norm" in "_".join(parts)
    )


def _line_phase(text: str) -> str | None:
    """Return the phase that a line begins with ("Test set: …", "val Loss: …"), for names that lack one."""
    match = re.match(r"[\s\[\]*>,-]*([A-Za-z]+)", text)
    return _PHASES.get(match.group(1).lower()) if match else None


def _name(words: list[str], phase: str | None) -> tuple[str | None, str]:
    """Return the phase from here on and the metric's name. A single word stays as it was printed."""
    if len(words) == 1:
        word = words[0]
        name = word.lower() if word.istitle() and word.isalpha() else word
        if phase and name.lower() in _CARRIED:
            return phase, f"{phase}_{_SHORT.get(name.lower(), name)}"
        return phase, name
    kept = [word.lower() for word in words if word.lower() not in _FILLERS] or [words[-1].lower()]
    own = _PHASES.get(kept[0])
    name = "_".join(_SHORT.get(word, word) for word in kept)
    if own:
        return own, name
    if phase and kept[-1] in _CARRIED:
        name = f"{phase}_{name}"
    return phase, name


def _is_code(text: str) -> bool:
    """Say whether a line without a counter looks like source code or a setting rather than a log."""
    if re.match(r"\s*(?:def|class|import|from|for|if|elif|else|while|return|with|self|#|@|//|print)\b", text):
        return True
    if text.startswith((" ", "\t")) and re.search(r"\w\s+=\s", text):
        return True
    return bool(re.search(r"\s#\s", text) or _TALK.search(text))
