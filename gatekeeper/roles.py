"""What a metric is, understood from the name trainers log it under.

The names are those of Hugging Face Trainer, Lightning, Keras, Stable-Baselines3, CleanRL, RLlib, Ray,
Ultralytics, nanoGPT, AlgoPerf and of ``actor/…``, ``critic/…`` style code. A declared role always wins.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

__all__ = ["IGNORED", "PLAIN", "ROLES", "Guess", "understand"]

ROLES: dict[str, str] = {
    "loss": "training loss, lower is better",
    "eval": "held-out measure of the goal (loss, score or return)",
    "train_metric": "the training-side twin of an eval score",
    "aux_loss": "a part of the loss, or a loss of a game (actor, critic, generator); only its finiteness "
    "decides",
    "value_loss": "critic or value-function loss; rises legitimately with the returns",
    "grad_norm": "gradient norm",
    "lr": "learning rate",
    "entropy": "policy entropy",
    "kl": "KL divergence between policy updates",
    "explained_variance": "explained variance of the value function",
    "q_pred": "predicted Q value",
    "mc_return": "discounted Monte Carlo return that the prediction should match",
    "return_std": "spread of the evaluation returns",
    "gpu_util": "GPU utilisation in percent",
}

IGNORED = "ignored"
PLAIN = 18
"""Rank from which a training loss's name is that of the whole loss ("loss", "train_loss")."""
LOWER, HIGHER = 1, -1


class Guess(NamedTuple):
    """A role, its direction (1: lower is better, -1: higher, 0.

    Neither) and how good a candidate the name is (more is better).
    """

    role: str
    direction: int
    rank: int
    # "loss", "part" (of a loss), "error", "score", "return", or "accuracy" where 1 (or 100) is the ceiling.
    kind: str = ""


_WORDS = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+")

_EVAL = {
    "val", "valid", "validation", "eval", "evaluation", "test", "dev", "heldout", "holdout", "evaluator",
}  # fmt: skip
_TRAIN = {
    "train", "training", "rollout", "tr",
}  # fmt: skip
# Names that never decide: clocks, counters, settings, systems.
_NEVER = {
    "time", "times", "fps", "sec", "secs", "second", "seconds", "ms", "duration", "runtime", "elapsed",
    "eta", "timestamp", "stamp", "date", "throughput", "mfu", "flops", "flos", "speed", "latency", "epoch",
    "epochs", "step", "steps", "iter", "iters", "iteration", "iterations", "episode", "episodes", "count",
    "counter", "num", "number", "total", "updates", "examples", "samples", "tokens", "seen", "budget",
    "memory", "mem", "clip", "clipped", "clipfrac", "scale", "scaler", "weight", "weights", "coef", "coeff",
    "coefficient", "temperature", "temp", "momentum", "best", "min", "max", "batch", "size", "len",
    "length", "seed", "rank", "pid", "port", "range", "rate", "fraction", "frac", "avgtime", "preemption",
    "decay", "beta", "betas", "gamma", "tau", "eps", "epsilon", "patience", "version", "id", "buffer",
    "target", "smoothed", "initial", "hours", "minutes", "worker", "workers", "gpus", "modes", "square",
    "delta", "chosen", "rejected", "margin", "margins", "logps",
}  # fmt: skip
_ACCURACY = {
    "acc", "accs", "accuracy", "accuracies", "top", "prec", "hits", "f1", "fscore", "auc", "auroc", "roc",
    "map", "ap", "precision", "recall", "iou", "miou", "dice", "mcc", "matthews", "kappa", "success",
    "winrate", "win", "em", "hit", "ndcg", "mrr", "pearson", "pearsonr", "spearman", "spearmanr", "r2",
}  # fmt: skip
_SCORE = {
    "score", "scores", "bleu", "rouge", "meteor", "cider", "psnr", "ssim", "is", "chrf", "sacrebleu",
    "likelihood", "logprob",
}  # fmt: skip
_RETURN = {
    "reward", "rewards", "return", "returns", "rew", "ret", "fitness",
}  # fmt: skip
_LOWER_SCORE = {
    "wer", "cer", "fid", "kid", "ppl", "perplexity", "err", "error", "mse", "mae", "rmse", "bpb", "bpc",
    "bpd", "nll", "ter", "mape", "l1", "l2", "brier", "ece", "lpips", "distance", "divergence", "fvd",
    "mmd", "emd", "bits",
}  # fmt: skip
_LOSS = {
    "loss", "losses", "nll", "bce", "crossentropy", "xent", "mse", "cost",
}  # fmt: skip
_PARTS = {
    "box", "bbox", "cls", "obj", "dfl", "theta", "aux", "reg", "recon", "reconstruction", "giou", "mask",
    "kpt", "rpn", "seg", "kl", "kld", "pose",
}  # fmt: skip
_GAME = {
    "actor", "critic", "policy", "value", "vf", "pg", "td", "qf", "qf1", "qf2", "alpha", "entropy",
    "generator", "discriminator", "gen", "dis", "disc", "adversarial", "adv", "gan", "cql", "exploration",
    "exploitation", "surrogate", "ppo", "sac", "dqn",
}  # fmt: skip


def _tokens(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]


@lru_cache(maxsize=4096)
def understand(name: str) -> Guess:
    """Return what a metric of this name is; names that never decide get the role ``"ignored"``."""
    tokens = _tokens(name)
    words = {*tokens, *(token.rstrip("0123456789") for token in tokens)}
    joined = "_".join(tokens)
    ignored = Guess(IGNORED, 0, 0)
    if not tokens:
        return ignored
    held_out, training = bool(words & _EVAL), bool(words & _TRAIN)

    if words & {"grad", "gradient", "gradients", "gnorm"} and words & {"norm", "gnorm", "norms"}:
        return (
            ignored
            if words & {"clip", "clipped", "max", "square", "threshold"}
            else Guess("grad_norm", 0, 3 - len(tokens))
        )
    if "gpu" in words and (
        "util" in words or "utilization" in words or (tokens[-1] == "gpu" and "system" in words)
    ):
        return Guess("gpu_util", 0, 1)
    if words & {"system", "sys", "perf"}:
        return ignored
    if (
        "lr" in words
        or re.fullmatch(r".*(^|_)(lr\d+|learning_rate).*", joined)
        or re.search(r"(^|_)lr(_|\d|$)", joined)
    ):
        return (
            ignored
            if words & {"scale", "decay", "mult"} and "rate" not in words
            else Guess("lr", 0, 3 - len(tokens))
        )
    if words & {"explained"} and words & {"variance", "var"}:
        return Guess("explained_variance", HIGHER, 1)
    if "mc" in words and words & _RETURN:
        return Guess("mc_return", 0, 2 - ("std" in words) * 9)
    if re.search(r"(^|_)(q|qf)\d?_?(pred|mean|val|vals|value|values)(_mean)?$|mean_q$", joined):
        return Guess("q_pred", 0, 3 if "pred" in words else 1)
    if words & {"kl"} and "loss" not in words and not words & {"coef", "coeff", "target", "weight", "beta"}:
        return Guess("kl", 0, 2 if "approx" in words else 1)
    if "cross" in words:
        words.discard("entropy")
    if "entropy" in words and not words & {"cross", "crossentropy", "coef", "coeff", "target", "alpha"}:
        return Guess("entropy", -1 if "loss" in words else 1, 1)
    if words & {"std", "stddev", "stdev"}:
        return Guess("return_std", 0, 1) if words & _RETURN or "return" in joined else ignored
    if words & {"max", "min"} and words & _RETURN:
        return ignored

    kind, direction = "", 0
    if "loss" in words:  # a dice_loss is no dice score, a reward_loss no reward
        kind, direction = "loss", LOWER
    elif (
        words & _ACCURACY
        or re.search(r"(^|_)(h?b*b?m?ap|map)\d*($|_)", joined)
        or "iou" in joined.replace("_", "")
        or ("map" in joined.replace("_", "")[-12:] and "metrics" in words)
    ):
        kind, direction = "accuracy", HIGHER
    elif words & _RETURN or joined in {"r", "eval_value"} or name == "Value":
        kind, direction = "return", HIGHER
    elif words & _LOSS or joined.endswith("loss") or joined.endswith("cross_entropy"):
        kind, direction = "loss", LOWER
    elif words & _LOWER_SCORE:
        kind, direction = (
            "loss" if words & {"nll", "ppl", "perplexity", "bpb", "bpc", "bpd"} else "error",
            LOWER,
        )
    elif words & _SCORE:
        kind, direction = "score", HIGHER
    if not kind:
        return ignored
    settings = words & (_NEVER - {"rate", "len", "mean", "target", "samples", "step", "epoch"})
    if (
        settings
        and not (kind == "return" and settings <= {"episode", "episodes"})
        and not (kind == "loss" and settings <= {"iter", "total", "batch"})
    ):
        return ignored
    if "len" in words or "length" in words or "fps" in words:
        return ignored
    if joined == "score":  # bare: AlgoPerf logs its clock under it
        return ignored

    if kind in {"accuracy", "score", "return"} and not held_out:
        if training and kind != "return":
            return Guess("train_metric", direction, 3, kind)
        if kind == "return":
            return Guess("eval", direction, 40 - len(tokens) - 5 * training, kind)
        measured = bool(
            words & {"metrics", "coco", "bbox", "segm"}
        )  # detection metrics are held-out by their nature
        rank = 50 - 8 * bool(words & {"precision", "recall"}) if measured else 20
        return Guess(
            "eval" if measured or words & {"is", "map"} else "train_metric",
            direction,
            rank - len(tokens),
            kind,
        )
    if held_out and not training:
        rank = {"return": 60, "accuracy": 50, "score": 48, "loss": 40, "error": 45}[kind] - len(tokens)
        rank += (
            4 * bool(words & {"val", "valid", "validation"})
            - 6 * ("test" in words)
            - 8 * bool(words & {"precision", "recall"})
        )
        if kind == "loss" and words & _PARTS:
            return Guess("eval", direction, rank - 15, "part")
        return Guess("eval", direction, rank, kind)
    if kind == "error":
        rank = 18 if words & {"fid", "kid"} else 8
        return Guess("eval" if rank == 18 else "train_metric", direction, rank, kind)
    # loss_q0 is a quartile's loss, but q_loss and loss_q are a critic's.
    player = re.search(r"(^|_)(?:([qgdv]|pi)_loss(_|$)|loss_([qgdv]|pi)(_|$))", joined)
    if words & {"critic", "value", "vf", "td", "qf"} or (player and {player[2], player[4]} & {"q", "v"}):
        return Guess("value_loss", direction, 4 - len(tokens), kind)
    if words & _GAME or player:
        return Guess("aux_loss", direction, 3 - len(tokens), kind)
    # The training loss itself: the plainer the name, the better; parts of a loss come after it.
    plain = joined in {"loss", "train_loss", "training_loss", "tr_loss"}
    rank = (
        20 if joined == "loss" else 19 if plain else 14 if joined.endswith("loss") and len(tokens) <= 3 else 8
    )
    if words & _PARTS or re.search(r"\d", joined):
        return Guess("loss", direction, rank - 6, "part")
    if joined.endswith("_epoch"):
        rank -= 1
    return Guess("loss", direction, rank, kind)
