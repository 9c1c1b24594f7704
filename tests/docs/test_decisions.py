"""The list of decisions has each of them, under its title."""

import re
from pathlib import Path

DECISIONS = Path(__file__).parents[2] / "docs" / "decisions"


def test_the_list_of_decisions_is_complete():
    rows = []
    for page in sorted(DECISIONS.glob("0*.md")):
        with page.open(encoding="utf-8") as file:
            number, title = re.fullmatch(r"# (\d+)\. (.+)\n", file.readline()).groups()
        assert int(number) == int(page.name[:4])
        rows.append(f"| {number} | [{title}]({page.name}) |")
    listed = (DECISIONS / "index.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in listed if line.startswith("| ") and "](" in line] == rows
