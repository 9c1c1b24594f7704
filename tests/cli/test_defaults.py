"""The defaults that --help, docs/cli.md and --show-config state are those that run.

What runs is caught where a command hands its model and settings to the training; what is stated is
read from the texts themselves.
"""

import dataclasses
import json
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

import tiny_encoders
from polyrank.cli import help
from polyrank.cli.completion import choices
from polyrank.cli.flags import flags_of
from polyrank.cli.main import commands, run
from polyrank.cli.options import build, settings_of
from polyrank.config import to_mapping
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.training.recipes import PRETRAINING, RECIPES

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
COMMANDS = {command.name: command for command in commands()}
DEFAULT = re.compile(r" \[default: ([^\[]*)\]( \||$)")
CASE = re.compile(
    r"(?P<value>\S+)(?: (?P<when>(?:for|with|where) .*?))?(?:, (?=\S+ (?:for|with|where) )|$)"
)
INTERACTION = "cross with --head interaction"
LINEAR = "cross with --head linear"
ONE_TEXT = "where no task compares vectors (--tasks mlm)"
TRAINED = [
    ("train", "bi", []),
    ("train", "poly", []),
    ("train", "cross", []),
    ("train", INTERACTION, ["--head", "interaction"]),
    ("train", LINEAR, ["--head", "linear"]),
    ("distil", "bi", []),
    ("distil", "poly", []),
    ("pretrain", "", []),
    ("pretrain", "with --base", ["--base"]),
    ("pretrain", ONE_TEXT, ["--tasks", "mlm"]),
]
RECIPES_OF = [("train", name, arch) for name, one in RECIPES.items() for arch in one.architectures]
RECIPES_OF += [("pretrain", name, "bi") for name in PRETRAINING]


class Handed(BaseException):
    """What a command hands to the training."""


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A tiny encoder that places as many tokens as a usual one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_encoders, "POSITIONS", 512)
        folder = tmp_path_factory.mktemp("encoder") / "bert"
        tiny_encoders.build_encoder_folder("bert", folder)
    return folder


@pytest.fixture(scope="module")
def files(encoder, tmp_path_factory):
    """Data of every kind, a teacher and saved models."""
    folder = tmp_path_factory.mktemp("files")

    def write(name, records):
        (folder / name).write_text("".join(json.dumps(one) + "\n" for one in records))

    words = ["file", "disk", "wifi", "sound"]
    write(
        "examples.jsonl",
        [{"context": f"{w} {n}", "response": f"it is {w}"} for n, w in enumerate(words * 6)],
    )
    for name, labels in (("sbert-nli", (0, 1, 2)), ("sbert-sts", (0.1, 0.5, 0.9))):
        pairs = [
            {"first": w, "second": v, "label": n}
            for w in words
            for v, n in zip("abc", labels, strict=True)
        ]
        write(f"{name}.jsonl", pairs)
    said = [f"The {w} is new. It is {w} number {n} of all." for n, w in enumerate(words * 5)]
    titles = [f"Title {n}" for n in range(len(said))]
    write(
        "articles.jsonl",
        [
            {
                "title": title,
                "sections": [
                    {"paragraphs": [text + " " + other]},
                    {
                        "heading": "More",
                        "paragraphs": [{"text": f"See {near}. {other}", "links": [near]}],
                    },
                ],
            }
            for title, text, other, near in zip(
                titles, said, said[1:] + said[:1], titles[1:] + titles[:1], strict=True
            )
        ],
    )
    write(
        "talks.jsonl",
        [{"turns": [one, "yes", other]} for one, other in zip(said[3:], said[:-3], strict=True)],
    )
    for source in ("articles", "talks"):
        given = ["corpus", str(folder / f"{source}.jsonl"), "--output", str(folder / source)]
        assert run(given, commands()) == 0
    CrossEncoder.from_pretrained(encoder, device="cpu").save_pretrained(folder / "teacher")
    other = {"similarity": "dot", "temperature": 1.0, "shared_towers": False, "projection": 8}
    saved = BiEncoder.from_pretrained(encoder, device="cpu", max_context_length=99, **other)
    saved.save_pretrained(folder / "saved")
    return folder


def arguments(command, files, encoder, *more):
    """A command line that lacks nothing."""
    given = [command, "--output", files / "out", "--device", "cpu", *more]
    if "--base" in given and given[-1] == "--base":
        given.append(encoder)
    if command == "pretrain":
        talks = "poly-encoder-pretraining" in given
        return [*given, "--corpus", f"{files / 'articles'}" + f",{files / 'talks'}" * talks]
    recipe = next((name for name in ("sbert-nli", "sbert-sts") if name in given), "examples")
    given += ["--train", files / f"{recipe}.jsonl"]
    given += [] if "--base" in given else ["--base", encoder]
    return given + (["--teacher", files / "teacher"] if command == "distil" else [])


@pytest.fixture
def handed(monkeypatch):
    """The settings that a command line runs with."""

    def catch(model, examples, output, config, *, objective, **_):
        raise Handed(model.config, config, objective)

    monkeypatch.setattr("polyrank.training.run.train", catch)
    monkeypatch.setattr(
        "polyrank.cli.distil.taught", lambda options, pool, dev, _: (pool.examples, dev)
    )

    def effective(given):
        with pytest.raises(Handed) as caught:
            run(list(map(str, given)), commands())
        found = {}
        for settings in caught.value.args:
            found |= json.loads(json.dumps(to_mapping(settings)))
        if given[0] == "pretrain":
            del found["max_steps"]  # the run counts them, unless they are given
        return found

    return effective


def in_the_docs(command):
    """The words for the default of each setting in docs/cli.md, by the cell of its flag."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## polyrank {command}\n")[1]
    rows = [line for line in section.split("\n## ")[0].splitlines() if line.startswith("| `")]
    return {row.split("`")[1].split()[0]: row.replace("\\|", "|") for row in rows}


@cache
def in_the_help(command):
    """The words of --help of each flag."""
    found = next(one for one in commands() if one.name == command)
    flags = flags_of(found.options)
    return {
        name: help.words(flag, every=True) for flag in flags for name in (flag.flag, flag.short)
    }


def default_in(words, case):
    """The default that words state for a case; None where they state none."""
    found = DEFAULT.search(words)
    if found is None:
        return None
    usual = None
    for piece in CASE.finditer(found[1]):
        when = piece["when"] or ""
        if when.startswith("for "):
            labels = re.split(r", | and ", when.removeprefix("for "))
            own = case if case in found[1] else case.split()[0]
            if own in labels:
                return piece["value"]
        if not when or case in when.split(" or "):
            usual = piece["value"]
    return None if usual == "none" else usual


def as_typed(flag, value):
    """A value as the words have it."""
    if isinstance(value, bool):
        return flag.flag if value else f"--no-{flag.flag[2:]}"
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value)) or None
    return None if value in (None, "") else str(value)


def shown(capsys, given):
    """The settings that --show-config prints, those in comments included."""
    capsys.readouterr()
    assert run([*map(str, given), "--show-config"], commands()) == 0
    lines = capsys.readouterr().out.splitlines()
    settings = [line.removeprefix("# ") for line in lines if not re.match("# .*:$", line)]
    return yaml.safe_load("\n".join(settings))


@pytest.mark.parametrize(("command", "case", "more"), TRAINED)
def test_what_is_stated_runs(command, case, more, files, encoder, handed, capsys):
    given = arguments(command, files, encoder, *more)
    if command != "pretrain":
        given += ["--arch", case.split()[0]]
    effective = handed(given)
    flags = [
        flag
        for flag in flags_of(COMMANDS[command].options)
        if flag.name in effective and flag.path != ("negatives",)  # those of the teacher's pairs
    ]
    assert len(flags) > 25
    if command == "distil":
        assert effective.pop("objective") == "margin_mse"
        assert "By default, margin_mse" in in_the_help(command)["--objective"]
    for words in (in_the_docs(command), in_the_help(command)):
        stated = {
            flag.name: default_in(words[flag.flag], case)
            for flag in flags
            if flag.name in effective and flag.flag not in map(str, more)
        }
        runs = dict(effective)
        if stated.get("head") == "auto":  # it is decided by the base
            assert (runs["head"], runs["reading"]) == ("interaction", "once")
            runs |= {"head": "auto", "reading": "auto"}
            stated["shared_towers"] = default_in(words["--shared-towers"], INTERACTION)
        assert stated == {
            flag.name: as_typed(flag, runs[flag.name]) for flag in flags if flag.name in stated
        }
    printed = shown(capsys, given)
    names = [name for name in effective if name in {flag.name for flag in flags}]
    assert {name: printed.get(name) for name in names} == {name: effective[name] for name in names}


@pytest.mark.parametrize(("command", "recipe", "arch"), RECIPES_OF)
def test_what_is_shown_of_a_recipe_runs(command, recipe, arch, files, encoder, handed, capsys):
    given = arguments(command, files, encoder, "--recipe", recipe)
    given += [] if command == "pretrain" else ["--arch", arch]
    effective, printed = handed(given), shown(capsys, given)
    names = [name for name in effective if name in printed]
    assert len(names) > 25
    assert {name: printed[name] for name in names} == {name: effective[name] for name in names}


@pytest.mark.parametrize(
    ("command", "arch"), [("train", "bi"), ("train", "poly"), ("train", "cross"), ("pretrain", "")]
)
def test_what_a_base_brings_is_shown(command, arch, files, encoder, handed, capsys):
    given = arguments(command, files, encoder, "--base", files / "saved")
    given += ["--arch", arch] if arch else []
    effective, printed = handed(given), shown(capsys, given)
    names = [name for name in effective if name in printed]
    assert {name: printed[name] for name in names} == {name: effective[name] for name in names}
    if arch == "bi":
        assert (printed["projection"], printed["max_context_length"]) == (8, 99)
    if command == "pretrain":
        assert (printed["shared_towers"], printed["max_context_length"]) == (False, 64)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_options_have_the_stated_defaults(command):
    flags = flags_of(command.options)
    given = {flag.name: required_value(command.options, flag) for flag in flags if flag.required}
    settings = settings_of(build(command.options, given, None, f"polyrank {command.name}"))
    for words in (in_the_docs(command.name), in_the_help(command.name)):
        for flag in flags:
            if flag.name in settings and not flag.required and not flag.positional:
                stated = default_in(words[flag.short or flag.flag], "")
                assert stated == as_typed(flag, settings[flag.name]), flag.name


def required_value(options, flag):
    """Something to type for a required flag."""
    names = {field.name: field for field in dataclasses.fields(options)}
    assert flag.name in names
    known = choices(flag)
    one = known[0] if known else "3"
    return [one] if flag.is_list else one
