"""The checks of the built documentation find what they are there to find."""

import importlib.util
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[2] / "scripts" / "site_checks.py"
WHOLE = '<html><body><h1 id="top">A</h1><a href="#top">top</a>{}</body></html>'


@pytest.fixture(scope="module")
def checks():
    spec = importlib.util.spec_from_file_location("site_checks", HOOK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def site(folder, body):
    (folder / "b").mkdir()
    (folder / "index.html").write_text(WHOLE.format(body), encoding="utf-8")
    (folder / "b" / "index.html").write_text(WHOLE.format(""), encoding="utf-8")
    (folder / "a.png").write_bytes(b"")
    return folder


@pytest.mark.parametrize(
    "body",
    [
        '<a href="b/">b</a> <a href="b/#top">b</a> <a href="https://example.org/">elsewhere</a>',
        '<img src="a.png" alt="a picture"> <img src="data:image/png;base64,AA" alt="a picture">',
        '<link rel="canonical" href="https://example.org/"> <script src="a.png"></script>',
    ],
)
def test_a_whole_site_has_no_findings(checks, tmp_path, body):
    assert list(checks.findings(site(tmp_path, body))) == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('<a href="c/">c</a>', "index.html links to c/, which is not there"),
        ('<a href="../x">x</a>', "index.html links to ../x, which is not there"),
        ('<a href="b/#end">b</a>', "index.html links to b/#end, but the page has no such anchor"),
        ('<a href="#end">b</a>', "index.html links to #end, but the page has no such anchor"),
        ('<img src="a.png">', "no alternative text for the image a.png"),
        ('<img src="https://x.org/a.png" alt="a">', "loads https://x.org/a.png from elsewhere"),
        ('<script src="//x.org/a.js"></script>', "loads //x.org/a.js from elsewhere"),
        ('<link rel="preconnect" href="https://x.org">', "loads https://x.org from elsewhere"),
        (
            '<style>@import "https://x.org/a.css"</style>',
            "loads https://x.org/a.css from elsewhere",
        ),
        ('<p style="background:url(http://x.org/a)">', "loads http://x.org/a from elsewhere"),
    ],
)
def test_each_mistake_is_found(checks, tmp_path, body, words):
    found = list(checks.findings(site(tmp_path, body)))
    assert len(found) == 1
    assert words in found[0]


def test_style_sheets_are_read_too(checks, tmp_path):
    folder = site(tmp_path, "")
    (folder / "a.css").write_text('@font-face{src:url("https://x.org/f.woff2")}', encoding="utf-8")
    assert list(checks.findings(folder)) == ["a.css loads https://x.org/f.woff2 from elsewhere"]


def test_escaped_bars_in_the_code_of_a_table_lose_their_backslash(checks):
    page = "| `a\\|b` | c\\|d |\n\n`e\\|f`"
    assert checks.on_page_markdown(page) == "| `a|b` | c\\|d |\n\n`e\\|f`"
