"""The runs of the benchmark: what is trained, which settings and planted fault, which seed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from judgment.games import GanConfig, train_gan
from judgment.learners import RlConfig, learn
from judgment.loop import Config, Fault, train
from judgment.record import Recorder

Any_Config = Config | RlConfig | GanConfig


@dataclass(frozen=True)
class Spec:
    """One run to make."""

    name: str
    task: str  # runs of one task share a yardstick
    variety: str
    config: Any_Config
    seed: int
    sweep: str = ""

    def make(self) -> tuple[Recorder, str, str]:
        """Train; return the record, and the objective's key and mode."""
        if isinstance(self.config, RlConfig):
            return learn(self.config, self.seed)
        if isinstance(self.config, GanConfig):
            return train_gan(self.config, self.seed)
        return train(self.config, self.seed)


# Good settings, one per task: what a practitioner would leave alone.
GOOD = {
    "mlp": Config("mlp", 2e-3, steps=1200, objective="accuracy"),
    "dropout": Config("dropout", 2e-3, steps=1500, layout="hf"),
    "deep": Config("deep", 1e-3, steps=1200, objective="accuracy", layout="lightning"),
    "small": Config("small", 1e-3, steps=600, eval_every=10, weight_decay=0.05),
    "spirals": Config("spirals", 5e-3, steps=1500, objective="accuracy", layout="keras", eval_every=20),
    "logistic": Config("logistic", 0.3, optimizer="sgd", steps=2000, eval_every=50),
    "conv": Config("conv", 2e-3, steps=900, objective="accuracy", layout="keras", eval_every=18),
    "friedman": Config("friedman", 2e-3, steps=1500),
    "smallreg": Config("smallreg", 1e-3, steps=800, eval_every=16, weight_decay=0.05),
    "charlm": Config("charlm", 3e-3, steps=2000, layout="nanogpt", eval_every=50, clip=1.0),
    "rnn": Config("rnn", 2e-3, steps=900, clip=1.0),
    "matfac": Config("matfac", 2e-2, steps=1500, layout="lightning"),
    "vae": Config("vae", 2e-3, steps=2000, layout="lightning", eval_every=50),
    "autoencoder": Config("autoencoder", 2e-3, steps=1200, layout="ray", eval_every=12),
    "contrastive": Config("contrastive", 2e-3, steps=1000, batch=64, layout="hf"),
}

# Settings that look odd in a log and still end well (whether they did is measured).
ODD: list[tuple[str, dict[str, Any]]] = [
    ("cosine", {"schedule": "cosine", "warmup": 50}),
    ("restarts", {"schedule": "restarts"}),
    ("tiny_batch", {"batch": 6}),
    ("step_decay", {"schedule": "step"}),
    ("cyclic", {"schedule": "cyclic"}),
    ("loss_scaling", {"loss_scaling": True, "layout": "plain"}),
    ("rewind", {"rewind": 400, "layout": "plain"}),
    ("sparse_eval", {"eval_every": 200, "layout": "plain"}),
    ("no_grads", {"grads": False, "layout": "lightning"}),
    ("hf_rows", {"layout": "hf"}),
    ("keras_rows", {"layout": "keras"}),
]

# Faults: (variety, share of the budget at which it begins, what changes).
FAULTS: list[tuple[str, float, dict[str, Any], Fault]] = [
    ("lr_high_sgd", 0.0, {"optimizer": "sgd", "clip": None}, Fault("lr", factor=3000.0)),
    ("lr_high_momentum", 0.0, {"optimizer": "momentum", "clip": None}, Fault("lr", factor=300.0)),
    ("lr_high_adam", 0.0, {}, Fault("lr", factor=300.0)),
    ("lr_stays_high", 0.4, {"optimizer": "momentum", "clip": None}, Fault("lr", factor=1000.0)),
    ("lr_bump", 0.45, {}, Fault("lr", factor=100.0, for_steps=8)),
    ("lr_bump_small", 0.5, {}, Fault("lr", factor=15.0, for_steps=15)),
    ("lr_zero", 0.0, {}, Fault("lr", factor=0.0)),
    ("lr_zero_mid", 0.3, {}, Fault("lr", factor=0.0)),
    ("frozen", 0.0, {}, Fault("frozen")),
    ("dead_relu", 0.0, {}, Fault("dead_relu", factor=25.0)),
    ("bad_init_large", 0.0, {}, Fault("bad_init", factor=30.0)),
    ("bad_init_tiny", 0.0, {"optimizer": "sgd"}, Fault("bad_init", factor=1e-4)),
    ("shuffled", 0.0, {}, Fault("permute_labels")),
    ("shuffled_mid", 0.5, {}, Fault("permute_labels")),
    ("inputs_x1000", 0.5, {}, Fault("scale_inputs", factor=1000.0)),
    ("inputs_x1000_once", 0.4, {}, Fault("scale_inputs", factor=1000.0, for_steps=3)),
    ("targets_x1000", 0.5, {}, Fault("scale_targets", factor=1000.0)),
    ("nan_batch", 0.55, {}, Fault("nan_batch", for_steps=1)),
    ("nan_skipped", 0.5, {}, Fault("nan_skipped", for_steps=2)),
    ("ascent", 0.6, {"clip": None}, Fault("ascent")),
    ("weights_lost", 0.6, {}, Fault("reset_weights", factor=0.0, for_steps=1)),
    ("weights_blown", 0.5, {}, Fault("reset_weights", factor=40.0, for_steps=1)),
    ("one_class", 0.5, {}, Fault("one_class")),
]
CLASSES = ("mlp", "dropout", "deep", "small", "spirals", "logistic", "conv", "charlm")
NO_RELU = ("logistic", "charlm", "rnn", "matfac", "vae", "spirals")


def applies(variety: str, task: str) -> bool:
    """Whether a fault means anything for a task."""
    if variety in ("one_class",):
        return task in CLASSES
    if variety.startswith("targets"):
        return task in ("friedman", "smallreg", "rnn", "matfac")
    if variety == "dead_relu":
        return task not in NO_RELU
    if variety.startswith(("nan_", "inputs")):
        return task not in ("charlm", "matfac")
    return not (variety == "bad_init_tiny" and task in ("logistic", "rnn", "vae"))


def begin(fault: Fault, share: float, steps: int) -> Fault:
    """Return the fault, beginning at a share of the budget."""
    return replace(fault, at=int(share * steps))


def supervised() -> list[Spec]:
    """Return the runs of the supervised tasks: good settings, odd ones, a third of the faults each."""
    specs = []
    for i, (task, good) in enumerate(GOOD.items()):
        for seed in (0, 1):
            specs.append(Spec(f"{task}_good_{seed}", task, "good", good, 100 * i + seed))
        for j, (variety, changes) in enumerate(ODD):
            if (i + j) % 4 in (0, 1):
                specs.append(
                    Spec(f"{task}_{variety}", task, variety, replace(good, **changes), 100 * i + 10 + j)
                )
        for j, (variety, share, changes, fault) in enumerate(FAULTS):
            if (i * 3 + j) % 5 in (0, 2) and applies(variety, task):
                config = replace(good, **changes, fault=begin(fault, share, good.steps))
                specs.append(Spec(f"{task}_{variety}", task, variety, config, 100 * i + 40 + j))
    for seed in range(3):
        long = replace(GOOD["small"], weight_decay=0.0, lr=3e-3, steps=1500, eval_every=15)
        specs.append(Spec(f"small_overfit_{seed}", "small", "overfit", long, 2000 + seed))
        plain = replace(GOOD["smallreg"], task="noisyreg", steps=1500, eval_every=15)
        long, short = replace(plain, weight_decay=0.0, lr=3e-3), replace(plain, weight_decay=0.3)
        specs.append(Spec(f"noisyreg_overfit_{seed}", "noisyreg", "overfit", long, 2010 + seed))
        specs.append(Spec(f"noisyreg_good_{seed}", "noisyreg", "good", short, 2015 + seed))
        harder = replace(GOOD["mlp"], curriculum="noisier", objective="loss")
        specs.append(Spec(f"mlp_noisier_{seed}", "mlp_loss", "curriculum", harder, 2020 + seed))
        easy = replace(GOOD["dropout"], curriculum="easy_first", layout="plain")
        specs.append(Spec(f"dropout_easy_first_{seed}", "dropout", "curriculum", easy, 2030 + seed))
    return specs


def reinforcement() -> list[Spec]:
    """Return the runs of the reinforcement learners and of the GAN."""
    base = {
        "grid": RlConfig("grid", 0.1, 5000),
        "dqn": RlConfig("dqn", 1e-3, 10_000, double=True),
        "ppo": RlConfig("ppo", 1e-3, 200),
        "reinforce": RlConfig("reinforce", 1e-2, 400),
        "bandit": RlConfig("bandit", 5e-3, 1500),
    }
    changes: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "grid": [
            ("quick", {"lr": 0.5}),
            ("no_exploring", {"explore": 0.0, "explore_end": 0.0, "optimism": -0.5}),
            ("gamma_bug", {"fault": Fault("gamma", 2000, 1.08)}),
            ("gamma_bug_slow", {"fault": Fault("gamma", 2000, 1.01)}),
            ("ascent", {"fault": Fault("ascent", 3000)}),
            ("lr_zero", {"fault": Fault("lr", 0, 0.0)}),
            ("lr_stays_high", {"fault": Fault("lr", 2500, 19.0)}),
        ],
        "dqn": [
            ("slow_sync", {"sync": 1000}),
            ("lr_high", {"lr": 0.05}),
            ("lr_huge", {"lr": 1.0, "sync": 1}),
            ("no_ends", {"ends": False, "sync": 1}),
            ("no_ends_slow", {"ends": False, "double": False, "lr": 3e-3}),
            ("gamma_bug", {"fault": Fault("gamma", 5000, 1.05)}),
            ("lr_stays_high", {"fault": Fault("lr", 5000, 300.0)}),
            ("frozen", {"fault": Fault("frozen")}),
        ],
        "ppo": [
            ("annealed", {"anneal": True}),
            ("sb3_names", {"names": "sb3"}),
            ("lr_high", {"lr": 0.3}),
            ("lr_huge", {"lr": 30.0}),
            ("late_lr", {"fault": Fault("lr", 100, 300.0)}),
            ("ascent", {"fault": Fault("ascent", 100)}),
            ("ascent_sb3", {"names": "sb3", "fault": Fault("ascent", 120)}),
            ("frozen", {"fault": Fault("frozen")}),
            ("no_clip", {"clip": 50.0, "lr": 0.02, "epochs": 12}),
            ("slow", {"lr": 2e-5}),
        ],
        "reinforce": [
            ("annealed", {"anneal": True}),
            ("quick", {"lr": 0.05}),
            ("lr_high", {"lr": 3.0}),
            ("late_lr", {"fault": Fault("lr", 200, 300.0)}),
            ("ascent", {"fault": Fault("ascent", 250)}),
            ("frozen", {"fault": Fault("frozen")}),
        ],
        "bandit": [
            ("no_bonus", {"entropy_bonus": 0.0}),
            ("lr_high", {"lr": 10.0, "entropy_bonus": 0.0}),
            ("late_lr", {"fault": Fault("lr", 700, 1000.0)}),
            ("ascent", {"fault": Fault("ascent", 900)}),
            ("frozen", {"fault": Fault("frozen")}),
            ("all_bonus", {"entropy_bonus": 3.0}),
        ],
    }
    specs = []
    for i, (learner, good) in enumerate(base.items()):
        for seed in range(4):
            specs.append(Spec(f"{learner}_good_{seed}", learner, "good", good, 3000 + 100 * i + seed))
        for j, (variety, change) in enumerate(changes[learner]):
            for seed in range(2):
                name, number = f"{learner}_{variety}_{seed}", 3020 + 100 * i + 2 * j + seed
                specs.append(Spec(name, learner, variety, replace(good, **change), number))
    gan = GanConfig(steps=3000)
    gans: list[tuple[str, GanConfig]] = [
        ("good", gan),
        ("good", gan),
        ("good", gan),
        ("good", gan),
        ("slow_start", replace(gan, lr_d=4e-4, lr_g=4e-4)),
        ("strong_judge", replace(gan, lr_d=5e-3, lr_g=1e-4)),
        ("lr_high", replace(gan, lr_d=0.05, lr_g=0.3)),
        ("frozen_maker", replace(gan, fault=Fault("frozen"))),
        ("late_lr", replace(gan, fault=Fault("lr", 2000, 300.0))),
        ("late_lr", replace(gan, fault=Fault("lr", 1800, 1000.0))),
    ]
    specs += [Spec(f"gan_{variety}_{k}", "gan", variety, c, 4000 + k) for k, (variety, c) in enumerate(gans)]
    return specs


def sweeps() -> list[Spec]:
    """Return four random searches, as people run them: most trials fair, a few that blow up."""
    specs = []
    rng = np.random.default_rng(77)

    def log_uniform(low: float, high: float) -> float:
        return float(math.exp(rng.uniform(math.log(low), math.log(high))))

    for k in range(20):
        config = replace(
            GOOD["mlp"],
            optimizer="momentum",
            lr=log_uniform(1e-4, 10),
            batch=int(rng.choice([8, 32, 128])),
            schedule=str(rng.choice(["constant", "cosine"])),
            layout="ray",
            eval_every=12,
        )
        specs.append(Spec(f"sweep_mlp_{k:02d}", "mlp", "sweep", config, 5000 + k, "mlp"))
    for k in range(20):
        config = replace(
            GOOD["friedman"],
            optimizer="sgd",
            lr=log_uniform(1e-4, 3),
            batch=int(rng.choice([8, 32, 64])),
            weight_decay=log_uniform(1e-6, 1e-1),
        )
        specs.append(Spec(f"sweep_friedman_{k:02d}", "friedman", "sweep", config, 5100 + k, "friedman"))
    for k in range(20):
        config = replace(
            GOOD["charlm"],
            lr=log_uniform(1e-5, 1),
            warmup=int(rng.choice([0, 100])),
            clip=(None, 1.0)[int(rng.integers(2))],
            schedule=str(rng.choice(["constant", "cosine"])),
        )
        specs.append(Spec(f"sweep_charlm_{k:02d}", "charlm", "sweep", config, 5200 + k, "charlm"))
    for k in range(16):
        rl = RlConfig(
            "ppo",
            log_uniform(1e-5, 1),
            150,
            gamma=float(rng.choice([0.9, 0.99])),
            entropy_bonus=log_uniform(1e-4, 0.3),
            epochs=int(rng.choice([2, 4, 8])),
        )
        specs.append(Spec(f"sweep_ppo_{k:02d}", "ppo", "sweep", rl, 5300 + k, "ppo"))
    return specs


def all_specs() -> list[Spec]:
    """Return every run of the benchmark."""
    return [*supervised(), *reinforcement(), *sweeps()]
