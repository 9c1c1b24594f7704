"""Docstrings and Sphinx's plain text → sections of paragraphs of prose.

A paragraph is one line, or one line per list item. Code, drawn tables and paragraphs that say
nothing are left out. Knows nothing of modules or topics.
"""

from __future__ import annotations

import inspect
import re

Texts = list[tuple[str, list[str]]]
"""Headings, each with its paragraphs; the first heading is empty."""

HEADING = re.compile(r"^(\S.*)\n([=*\-~^\"#+])\2{2,}[ ]*$", re.MULTILINE)
RULE = re.compile(r"[-=~_+* ]{3,}")
ITEM = re.compile(r"(?:[-*•]|\(?(?:\d{1,2}|[a-z])[.)]|[@\w*.,'/ ]{1,40} --)\s+\S")
WORD = re.compile(r"[(\[\"'“‘*]*[A-Za-z]+(?:[’'-][A-Za-z]+)*[)\]\"'”’*]*[.,;:!?]*[)\"”]*")
CODE_LINE = re.compile(
    r"(?:while|for|if|elif|with|def|class|except|async) .*:$|(?:try|else|finally):$|import \w|"
    r"from [\w.]+ import|@\w+|\$ |# |[\w.\[\], ]+ = |[\w.]+\(.*\)$|python -m |<[/\w]|.*  # "
)
ROLE = re.compile(r":(?:[a-z]+:)?[a-z]+:`[!~]?([^`<]*?)(?:\s*<[^`]*>)?`")
LITERAL = re.compile(r"``(.+?)``|`([^`'\n]{1,80})`_{0,2}|`([\w.]+)'")
EMPHASIS = re.compile(r"(?<![\w*\\/\"'(])(\(?)(\*{1,2})([A-Za-z_][\w .:-]*?)\2(?![\w*])")


def parse_text(text: str | None) -> Texts:
    """The sections of a text; the first has no heading and may be empty."""
    parts = HEADING.split(inspect.cleandoc(text or "").expandtabs())
    headings = ["", *map(simplify, parts[1::3])]
    return list(zip(headings, map(paragraphs_of, parts[::3]), strict=True))


def paragraphs_of(text: str) -> list[str]:
    """The readable paragraphs of a section."""
    paragraphs = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = [line for line in block.split("\n") if not RULE.fullmatch(line.strip())]
        if lines and not lines[0].lstrip().startswith(("+-", "|", ">>>")) and not is_code(lines):
            items: list[str] = []
            for line in map(str.strip, lines):
                if not items or ITEM.match(line):
                    items.append(line)
                else:
                    items[-1] += " " + line
            paragraphs.append(simplify("\n".join(items)))
    return [paragraph for paragraph in paragraphs if is_readable(paragraph)]


def is_readable(text: str) -> bool:
    """Whether a text says something: three words at least, and mostly words."""
    letters = sum(character.isalpha() or character.isspace() for character in text)
    return len(re.findall(r"[A-Za-z]{2,}", text)) >= 3 and letters > 0.7 * len(text)


def is_code(lines: list[str]) -> bool:
    """Whether lines are code or grammar rather than sentences."""
    indented = lines[0].startswith(" ")
    marked = sum(bool(CODE_LINE.match(line.strip())) for line in lines)
    if any("::=" in line for line in lines) or (indented and marked * 2 >= len(lines)):
        return True
    tokens = " ".join(lines).split()
    words = sum(bool(WORD.fullmatch(token)) for token in tokens)
    return words < len(tokens) * (0.6 if indented else 0.35)


def simplify(text: str) -> str:
    """Remove the inline markup: roles, backticks and emphasis leave their text."""
    text = ROLE.sub(r"\1", text)
    text = LITERAL.sub(lambda match: match[1] or match[2] or match[3], text)
    text = EMPHASIS.sub(r"\1\3", text)
    text = re.sub(r"\.\. (?:[\w-]+::|_[\w -]+:)\s*", "", text)
    text = re.sub(r"::(?=\n|$)", ":", text)
    return re.sub(r"[^\S\n]+", " ", text).strip()
