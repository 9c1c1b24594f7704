from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from polyrank.cli.flags import Options, flags_of
from polyrank.cli.help import default_words
from polyrank.cli.options import DeviceOptions, any_of, build, flattened, option, positional
from polyrank.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Recipe:
    rate: float = field(default=0.5, metadata={"help": "The rate."})
    seed: int = 0
    """The seed
    of all."""


@dataclass(frozen=True, kw_only=True)
class Small:
    architecture: ClassVar[str] = "small"
    reduction: Literal["first", "mean"] = "mean"
    """How."""
    shared: bool = False
    """Whether."""


@dataclass(frozen=True, kw_only=True)
class Large:
    architecture: ClassVar[str] = "large"
    reduction: Literal["first", "max"] = "first"
    """How."""
    width: int | None = None
    """How wide."""


@dataclass(frozen=True, kw_only=True)
class Everything(DeviceOptions):
    source: Path = positional("SOURCE", help="Where from.")
    texts: tuple[str, ...] = positional("TEXT", help="What.", default=())
    output: Path = option(help="Where to.")
    mode: Literal["a", "b"] | None = option(None, short="-m", help="Which.")
    ks: tuple[int, ...] = option((1, 2), help="Which k.")
    limit: int | float | None = option(None, help="How many.")
    recipe: Recipe = flattened(Recipe(seed=7))
    model: dict[str, Any] = any_of({"small": Small(), "large": Large()}, hide=("width",))


def made(config: Path | None = None, **given: Any) -> Everything:
    given = {"source": "in", "output": "out", **given}
    return build(Everything, given, config, "polyrank test")


def yaml(folder: Path, text: str) -> Path:
    path = folder / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_also_of_a_flattened_class() -> None:
    options = made()
    assert options.source == Path("in")
    assert options.recipe == Recipe(seed=7)
    assert options.device == "auto"
    assert options.model == {}


def test_what_is_typed_gets_the_type_of_the_field() -> None:
    options = made(
        texts=["a,b", "c"], ks=["5,6", "7"], rate="2", mode="b", limit="1.5", reduction="max"
    )
    assert options.texts == ("a,b", "c")
    assert options.ks == (5, 6, 7)
    assert options.recipe == Recipe(rate=2.0, seed=7)
    assert (options.mode, options.limit) == ("b", 1.5)
    assert options.model == {"reduction": "max"}


def test_a_flag_overrides_yaml_which_overrides_the_default(tmp_path: Path) -> None:
    config = yaml(tmp_path, "seed: 3\nrate: 0.25\nmode: a\nks: [9]\nshared: true\nlimit: 4\n")
    options = made(config, seed="4", mode="none", limit="none")
    assert options.recipe == Recipe(rate=0.25, seed=4)
    assert (options.mode, options.limit, options.ks) == (None, None, (9,))
    assert options.model == {"shared": True}


def test_required_ones_may_come_from_yaml(tmp_path: Path) -> None:
    config = yaml(tmp_path, "source: in\noutput: there\n")
    assert build(Everything, {}, config, "polyrank test").output == Path("there")
    with pytest.raises(UsageError, match="polyrank test: SOURCE is required and missing"):
        build(Everything, {"output": "out"}, None, "polyrank test")


def test_an_unknown_setting_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no setting 'sede'. Did you mean 'seed'\?"):
        made(yaml(tmp_path, "sede: 3\n"))
    with pytest.raises(UsageError, match="no setting 'width'"):  # hidden
        made(yaml(tmp_path, "width: 3\n"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seed": "x"}, "--seed must be a whole number, got 'x'"),
        ({"ks": ["1,x"]}, "--ks must be a whole number, got 'x'"),
        ({"rate": "fast"}, "--rate must be a number, got 'fast'"),
        ({"reduction": "min"}, "--reduction is 'min'.*Known are: first, max, mean"),
        ({"seed": "none"}, "--seed must be a whole number, got 'none'"),
    ],
)
def test_a_value_of_another_type_names_the_flag(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"polyrank test: {message}"):
        made(**given)


def test_a_wrong_type_in_yaml_names_file_and_setting(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"settings\.yaml: seed must be a whole number, got 'x'"):
        made(yaml(tmp_path, "seed: x\n"))


def test_the_words_of_flags() -> None:
    flags = {flag.name: flag for flag in flags_of(Everything)}
    assert list(flags)[:2] == ["source", "texts"]
    assert list(flags)[-1] == "device"
    assert flags["seed"].help == "The seed of all."
    assert flags["rate"].help == "The rate."
    assert flags["shared"].help == "Whether. Only for small."
    assert flags["reduction"].help == "How."
    assert default_words(flags["reduction"]) == " [default: mean for small, first for large]"
    assert flags["reduction"].metavar == "first|mean|max"
    assert "width" not in flags


def test_two_settings_of_one_name_are_refused() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Twice(Options):
        seed: int = option(1, help="A seed.")
        recipe: Recipe = flattened()

    Twice.__annotations__.update(seed=int, recipe=Recipe)
    with pytest.raises(AssertionError, match="seed"):
        flags_of(Twice)
