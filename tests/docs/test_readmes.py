"""Every link of the READMEs leads to a file, and to a heading of it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
READMES = sorted(ROOT.glob("README*.md"))


def anchors_of(page):
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()).strip() for heading in headings)
    return {re.sub(r"[ -]+", "-", heading) for heading in plain}


@pytest.mark.parametrize("readme", READMES, ids=[readme.name for readme in READMES])
def test_links_lead_somewhere(readme):
    links = LINK.findall(readme.read_text(encoding="utf-8"))
    assert len(links) > 10
    for link in links:
        name, _, anchor = link.partition("#")
        if not name.startswith("https:"):
            assert (ROOT / name).is_file(), link
            assert not anchor or anchor in anchors_of(ROOT / name), link
