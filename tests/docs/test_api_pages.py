"""The API reference has every public name once, and no name that does not exist."""

import re
from collections import Counter
from operator import attrgetter
from pathlib import Path

import pytest
import yaml

import polyrank
from polyrank import serving

PAGES = Path(__file__).parents[2] / "docs" / "api"
ENTRY = re.compile(r"^::: (\S+)\n((?:    .*\n|\n(?=    ))*)", re.M)
ENTRIES = [
    (name, yaml.safe_load(options or "{}") or {})
    for page in sorted(PAGES.glob("*.md"))
    for name, options in ENTRY.findall(page.read_text(encoding="utf-8"))
]


def test_every_public_name_is_documented_once():
    times = Counter(name.removeprefix("polyrank.") for name, _ in ENTRIES)
    assert set(times.values()) == {1}
    public = set(polyrank.__all__) | {f"serving.{name}" for name in serving.__all__}
    missing = public - {"__version__"} - times.keys()
    assert not missing, f"docs/api has no entry '::: polyrank.NAME' for {sorted(missing)}"
    assert times.keys() <= public


@pytest.mark.parametrize(("name", "options"), ENTRIES, ids=[name for name, _ in ENTRIES])
def test_the_members_that_a_page_names_exist(name, options):
    documented = attrgetter(name.removeprefix("polyrank."))(polyrank)
    for member in options.get("options", {}).get("members") or []:
        assert getattr(documented, member).__doc__, f"{name}.{member} has no docstring"
