from __future__ import annotations

import argparse
import json
import string
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from gatekeeper.redact import MARK, is_secret_name, redact, redact_text, redact_url
from hypothesis import given
from hypothesis import strategies as st

SECRET_NAMES = """
api_key apikey API-KEY apiKey wandb_api_key WANDB_API_KEY wandb.api_key OPENAI_API_KEY token
hf_token HF_TOKEN auth_token access_token accessToken GITHUB_TOKEN refresh_token api_tokens password
db_password dbPassword passwd passphrase secret client_secret SECRET secrets secret_key credential
credentials auth authorization private_key access_key AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
AWS_SESSION_TOKEN aws.secret.access.key ssh_key signing_key account_key connection_string cookie
bearer_token neptune_api_token token_value x-api-key
""".split()  # noqa: SIM905
INNOCENT_NAMES = """
tokenizer tokenizer_name num_tokens max_tokens n_tokens tokens_per_batch token_dim token_embedding
token_type_ids pad_token eos_token bos_token_id mask_token max_new_tokens secretary author authors
key keys key_dim num_keys primary_key public_key sort_key keyboard monkey query_key_value lr
learning_rate passes bypass pass_rate compass accessible private public_path credit signature_dim
next_token loss_per_token image_token class_token
""".split()  # noqa: SIM905

HEX = "0123456789abcdef" * 3
LETTERS = "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
SHAPES = [
    HEX[:40],
    f"local-{HEX[:40]}",
    f"wandb_v1_{LETTERS}{LETTERS}",
    f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{LETTERS}",
    f"sk-{LETTERS}",
    f"sk-proj-{LETTERS}",
    f"sk-ant-api03-{LETTERS}",
    f"ghp_{LETTERS}",
    f"ghs_{LETTERS}",
    f"github_pat_{LETTERS}",
    f"glpat-{LETTERS}",
    f"hf_{LETTERS}",
    "AKIAIOSFODNN7EXAMPLE",
    "ASIAIOSFODNN7EXAMPLE",
    f"xoxb-{LETTERS}",
    f"AIza{LETTERS}",
]
CONTEXTS = [
    "{}",
    "the key is {}.",
    "a={}",
    '"{}"',
    "[{}, 1]",
    "x {}\ny",
    "({})",
    "https://h.example/{}",
    "k: {},",
]
secrets_typed = st.text(
    alphabet=string.ascii_letters + string.digits + "!#$%^*_+./~-", min_size=6, max_size=40
).map(
    lambda s: "Zq9" + s  # never a number or a word of a vocabulary
)


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_value_under_a_secret_name_is_hidden(name: str) -> None:
    assert redact({"lr": 0.1, "model": {name: "hunter2", "width": 3}}) == {
        "lr": 0.1,
        "model": {name: MARK, "width": 3},
    }


@pytest.mark.parametrize("name", INNOCENT_NAMES)
def test_innocent_names_keep_their_values(name: str) -> None:
    assert redact({name: "value"}) == {name: "value"}
    assert redact_text(f"{name}=value, {name}: other") == f"{name}=value, {name}: other"


def test_numbers_switches_and_vocabulary_are_no_secrets() -> None:
    kept = {
        "token": 512,
        "use_auth_token": True,
        "auth": False,
        "token_count": 3,
        "password": None,
        "sep_token": "[SEP]",
    }
    assert redact(kept) == kept
    assert redact({"token": "<|endoftext|>"}) == {"token": "<|endoftext|>"}
    assert redact({"metrics": {"loss/token": float("inf"), "secret_loss": 0.5}, "token": [1.0, 2.0]}) == {
        "metrics": {"loss/token": float("inf"), "secret_loss": 0.5},
        "token": [1.0, 2.0],
    }
    assert redact({"password": 12345678}) == {"password": MARK}
    assert redact({"auth": {"user": "me", "pin": 7}}) == {"auth": {"user": MARK, "pin": 7}}


@pytest.mark.parametrize("secret", SHAPES)
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_known_form_is_hidden_in_any_text(secret: str, context: str) -> None:
    hidden = redact_text(context.format(secret))
    assert secret not in hidden
    assert MARK in hidden
    assert redact({"innocent": context.format(secret)}) == {"innocent": hidden}
    assert secret not in json.dumps(redact({context.format(secret): 1}))


def test_a_private_key_is_hidden_whole_even_when_it_is_cut() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n"
    assert redact_text(f"before {key}-----END RSA PRIVATE KEY----- after") == f"before {MARK} after"
    assert redact_text(f"before {key}") == f"before {MARK}"


def test_a_commit_under_its_name_stays() -> None:
    commit = HEX[:40]
    assert redact({"git_commit": commit, "sha": commit, "note": commit}) == {
        "git_commit": commit,
        "sha": commit,
        "note": MARK,
    }


TEMPLATES = [
    "password={}",
    "password: {}",
    "PASSWORD = {} and more",
    "api_key='{}'",
    '{{"api_key": "{}", "lr": 0.1}}',
    "{{'db': {{'passwd': '{}'}}}}",
    'cmd: "train --password={} --lr 3"',
    '{{"args": "{{\\"client_secret\\": \\"{}\\"}}"}}',
    "--api-key {} --lr 0.1",
    "--api-key={}",
    "env WANDB_API_KEY={} python train.py",
    "Authorization: Bearer {}",
    "authorization: Basic {}==",
    "curl -H 'Bearer {}'",
    "https://me:{}@host.example/path",
    "postgres://me:{}/x@host.example/path",
    "git+https://{}@host.example/repo.git",
    "postgres://me:{}@db:5432/x",
    "https://h.example/r?token={}&step=3",
    "https://h.example/r?step=3&X-Amz-Signature={}",
    "https://h.example/r#access_token={}",
]


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_named_secret_is_hidden_in_free_text(template: str) -> None:
    secret = "Zq9hunter2hunter2"
    hidden = redact_text(template.format(secret))
    assert secret not in hidden
    assert redact_text(hidden) == hidden


@given(secrets_typed, st.sampled_from([t for t in TEMPLATES if "://" not in t]))
def test_no_part_of_a_typed_secret_survives(secret: str, template: str) -> None:
    hidden = redact_text(template.format(secret))
    assert secret[3:] not in hidden or len(secret) < 10
    assert redact_text(hidden) == hidden


def test_the_text_around_a_secret_survives() -> None:
    assert (
        redact_text("loss is 3; password=hunter2, lr=0.1 at step 5")
        == f"loss is 3; password={MARK}, lr=0.1 at step 5"
    )
    assert (
        redact_url("https://h.example/r?token=x&step=3#top") == f"https://h.example/r?token={MARK}&step=3#top"
    )
    assert redact_url("https://me:pw@h.example/r") == "https://redacted@h.example/r"
    for text in (
        "train/loss is NaN at step 300 (last finite 0.51 at step 299)",
        "https://wandb.ai/team/project/runs/a1b2c3d4?nw=nwuser",
        "ssh://me@host.example:22/var/log/train.log",
        "the secretary passed the token to the tokenizer",
        "12:30:01 step: 5, tokens: 1024, tokens/s: 3.5",
    ):
        assert redact_text(text) == text


def test_secrets_of_this_process_are_hidden_wherever_they_appear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_PASSWORD", "correct-horse-battery")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    assert redact_text("run named correct-horse-battery, false") == f"run named {MARK}, false"
    assert redact({"a": ["correct-horse-battery"]}) == {"a": [MARK]}


@pytest.mark.parametrize(
    "value",
    [
        {"env": [{"name": "API_KEY", "value": "hunter2"}]},
        {"args": ["train.py", "--api-key", "hunter2"]},
        {"pairs": [("password", "hunter2")]},
        {"headers": {"Authorization": "hunter2"}},
        OrderedDict(secret="hunter2"),
        argparse.Namespace(secret="hunter2"),
        SimpleNamespace(nested=[SimpleNamespace(secret="hunter2")]),
        [({"deep": [{"secret": ["hunter2"]}]},)],
        {"path": Path("s3://me:hunter2@bucket")},
        {"bytes": b"password=hunter2"},
    ],
)
def test_containers_of_every_kind_are_searched(value: object) -> None:
    text = repr(redact(value))
    assert "hunter2" not in text
    assert MARK in text or "redacted@" in text or ":redacted" in text


@dataclass
class Settings:
    lr: float
    api_key: str


class Point(NamedTuple):
    x: int
    y: str


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no")

    def items(self) -> Any:
        raise RuntimeError("no")

    def keys(self) -> Any:
        raise RuntimeError("no")


def test_the_result_is_plain_and_json_able() -> None:
    loop: dict[str, Any] = {"name": "loop"}
    loop["self"] = loop
    plain = redact(
        {
            "d": Settings(0.1, "x"),
            "n": np.float64(1.5),
            "i": np.int64(3),
            "z": np.array(2.0),
            "t": Point(1, "a"),
            5: loop,
        }
    )
    assert plain["d"] == {"lr": 0.1, "api_key": MARK}
    assert (plain["n"], plain["i"], plain["z"], plain["t"]) == (1.5, 3, 2.0, (1, "a"))
    assert plain["5"]["name"] == "loop"
    json.dumps(plain)


def test_what_cannot_be_read_is_hidden_and_the_rest_stays() -> None:
    assert redact({"a": Hostile(), "lr": 0.1}) == {"a": MARK, "lr": 0.1}
    assert redact_text(Hostile()) == redact_url(Hostile()) == MARK
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    json.dumps(redact(deep))


def test_a_limit_cuts_what_lies_deep_before_what_lies_on_top() -> None:
    config = {"big": {f"k{i}": "x" * 2000 for i in range(1000)}, "lr": 0.1, "list": list(range(5000))}
    cut = redact(config, limit=10_000)
    assert cut["lr"] == 0.1
    assert len(json.dumps(cut)) < 150_000
    assert "more" in json.dumps(cut["big"])
    secret = f"ghp_{LETTERS}"
    assert secret[:12] not in json.dumps(redact({"a": "x" * 490 + " " + secret}, limit=10_000))


values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.floats(), st.integers(), st.text(), st.binary(), st.sampled_from(SHAPES)
    ),
    lambda inner: st.one_of(
        st.lists(inner),
        st.tuples(inner, inner),
        st.dictionaries(st.sampled_from(SECRET_NAMES + INNOCENT_NAMES), inner),
    ),
    max_leaves=12,
)


@given(values)
def test_redacting_twice_changes_nothing(value: object) -> None:
    once = redact(value)
    assert repr(redact(once)) == repr(once)
    assert not [secret for secret in SHAPES if secret in repr(once)]


FRAGMENTS = st.sampled_from(
    [
        *SHAPES,
        *SECRET_NAMES,
        "=",
        ": ",
        '"',
        "'",
        "\\",
        "--",
        " ",
        "://",
        "@",
        "?",
        "&",
        ",",
        "\n",
        "bearer ",
        "1",
        MARK,
        "{",
    ]
)


@given(st.one_of(st.text(), st.lists(FRAGMENTS, max_size=14).map("".join)))
def test_text_is_redacted_once_and_for_all(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


@given(st.text())
def test_any_name_gets_an_answer(name: str) -> None:
    assert is_secret_name(name) in (True, False)
