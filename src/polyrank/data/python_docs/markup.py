"""Documentation text, as Sphinx renders it or as docstrings write it, to sections of paragraphs.

Knows headings, lists, tables, code and inline markup; knows nothing of modules, topics or links.
A paragraph of prose is one line (one a list item); a paragraph of code keeps its lines, each
indented by four spaces.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import NamedTuple

CODE_INDENT = "    "

UNDERLINE = re.compile(r"([=*\-~^\"#+])\1{2,}$")
ITEM = re.compile(
    r"([-*•o+]\s+\S|\(?(\d{1,2}|[a-z])[.)]\s+\S|[@\w*.,'/ \[\]-]{1,40}?(?: --?\s+| ?:\s+)\S)"
)
SIGNATURE = re.compile(
    r"(?:(?:class|classmethod|staticmethod|exception|async|coroutine|abstractmethod) )*"
    r"[A-Za-z_][\w.]*\(.*\)(?: --?> .{1,60})?$"
)
WORD = re.compile(r"[(\[\"'“‘*]*[A-Za-z][A-Za-z]*(?:[’'-][A-Za-z]+)*[)\]\"'”’*]*[.,;:!?]*[)\"”]*")
STATEMENT_LINE = re.compile(
    r"(?:while|for|if|elif|with|def|class|except|async) .*:$|(?:try|else|finally):$|"
    r"import \w+$|print\("
)
CODE_LINE = re.compile(
    r"(?:>>> ?|\.\.\. |import \w|from [\w.]+ import|def \w+\(|class \w+.*:$|for .+ in .+:|"
    r"@\w+|\$ |# |[\w.\[\], ]+ = |[\w.]+\(.*\)$|\(Pdb\)|"
    r"python -m |<[/\w])"
)
ROLE = re.compile(r":(?:[a-z]+:)?[a-z]+:`[!~]?([^`<]*?)(?:\s*<[^`]*>)?`")
LITERAL = re.compile(r"``(.+?)``|`([^`'\n]{1,80})`_{0,2}|`([\w.]+)'")
EMPHASIS = re.compile(r"(?<![\w*\\/\"'(])(\(?)(\*{1,2})([A-Za-z_][\w .:-]*?)\2(?![\w*])")


class TextSection(NamedTuple):
    """A heading, empty for what stands before the first one, and the paragraphs below it."""

    heading: str
    paragraphs: list[str]


class Block(NamedTuple):
    """Lines without a blank one between them, and the indentation of the first."""

    indent: int
    lines: list[str]


def parse_text(text: str, *, definitions: bool = False) -> list[TextSection]:
    """Split a text into its sections; the first has no heading and may be empty.

    With `definitions`, a signature with an indented text below it opens a section of its own.
    """
    sections = [TextSection("", [])]
    heading = ""
    inside = False
    blocks = split_blocks(inspect.cleandoc(text))
    for position, block in enumerate(blocks):
        following = blocks[position + 1] if position + 1 < len(blocks) else None
        if is_heading(block):
            heading = simplify(block.lines[0].strip())
            sections.append(TextSection(heading, []))
            inside = False
        elif definitions and opens_definition(block, following):
            sections.append(TextSection(simplify(block.lines[0].strip()), []))
            inside = True
        else:
            if inside and block.indent == 0:
                sections.append(TextSection(heading, []))
                inside = False
            sections[-1].paragraphs.extend(paragraphs_of(block))
    return [section for section in sections if section.paragraphs or section is sections[0]]


def split_blocks(text: str) -> list[Block]:
    """Cut a text at its blank lines and around its underlined headings."""
    lines = text.expandtabs().splitlines()
    blocks: list[Block] = []
    pending: list[str] = []

    def close() -> None:
        if pending:
            blocks.append(Block(len(pending[0]) - len(pending[0].lstrip()), list(pending)))
            pending.clear()

    for number, line in enumerate(lines):
        following = lines[number + 1].rstrip() if number + 1 < len(lines) else ""
        if not line.strip() or re.fullmatch(r"\f", line):
            close()
        elif underlines(line, following):
            close()
            pending.append(line)
        elif pending and len(pending) == 1 and underlines(pending[0], line):
            pending.append(line.rstrip())
            close()
        elif not (UNDERLINE.fullmatch(line.strip()) and not pending):
            pending.append(line.rstrip())
    close()
    return blocks


def underlines(title: str, line: str) -> bool:
    """Whether `line` makes a heading of the line `title` above it."""
    return (
        bool(UNDERLINE.fullmatch(line))
        and not title.startswith((" ", "+", "|"))
        and not UNDERLINE.fullmatch(title.strip())
        and len(line) >= len(title.rstrip()) - 2
    )


def is_heading(block: Block) -> bool:
    """Whether a block is a title and its underline."""
    return len(block.lines) == 2 and underlines(*block.lines)


def opens_definition(block: Block, following: Block | None) -> bool:
    """Whether a block is a signature that an indented text explains."""
    return (
        block.indent == 0
        and following is not None
        and following.indent > 0
        and not is_code(following.lines, indented=True)
        and all(SIGNATURE.fullmatch(line.strip()) for line in block.lines)
    )


def paragraphs_of(block: Block) -> list[str]:
    """The paragraphs of a block: one of prose or of code, or the rows of a table."""
    if block.lines[0].lstrip().startswith("+-"):
        return table_rows(block.lines)
    if is_code(block.lines, indented=block.indent > 0):
        return [textwrap.indent(textwrap.dedent("\n".join(block.lines)), CODE_INDENT)]
    prose = [line for line in block.lines if not re.fullmatch(r"[-=~_+* ]{3,}", line)]
    trailing: list[str] = []
    for number, line in enumerate(prose):
        if line.lstrip().startswith(">>> "):
            prose, trailing = prose[:number], prose[number:]
            break
    text = join_lines(prose)
    paragraphs = [text] if text else []
    if trailing:
        paragraphs.append(textwrap.indent(textwrap.dedent("\n".join(trailing)), CODE_INDENT))
    return paragraphs


def is_code(lines: list[str], *, indented: bool) -> bool:
    """Whether lines are code, grammar or a drawing rather than sentences."""
    first = lines[0].strip()
    if first.startswith(">>>") or any("::=" in line for line in lines):
        return True
    if indented and first.endswith(("(", "[", "{", "\\")):
        return True
    statements = any(STATEMENT_LINE.match(line.strip()) for line in lines)
    if statements and (indented or re.match(r"\w+ = \S", first)):
        return True
    marks = sum(bool(CODE_LINE.match(line.strip())) or "  # " in line for line in lines)
    if indented and marks * 2 >= len(lines):
        return True
    tokens = " ".join(lines).split()
    words = sum(bool(WORD.fullmatch(token)) for token in tokens)
    return words < len(tokens) * (0.6 if indented else 0.35)


def is_code_paragraph(paragraph: str) -> bool:
    """Whether a paragraph made here is code."""
    return paragraph.startswith(CODE_INDENT)


def join_lines(lines: list[str]) -> str:
    """Unwrap lines of prose; list items and described terms keep a line each."""
    indents = [len(line) - len(line.lstrip()) for line in lines]
    items: list[str] = []
    for number, line in enumerate(lines):
        stripped = line.strip()
        previous = items[-1] if items else ""
        deeper = number + 1 < len(lines) and indents[number + 1] > indents[number]
        is_term = deeper and len(stripped.split()) <= 3 and not stripped.endswith((".", ","))
        is_term = is_term and not stripped.startswith(("- ", "* "))
        continues = (
            number > 0 and indents[number] > indents[number - 1] and not ITEM.match(stripped)
        )
        starts_item = ITEM.match(stripped) and (
            number == 0
            or stripped[0] in "-*•("
            or stripped[0].isdigit()
            or "-- " in stripped
            or indents[number] != indents[0]
            or previous.endswith(":")
        )
        if not items or ((starts_item or is_term) and not continues):
            items.append(stripped + ":" if is_term and not stripped.endswith(":") else stripped)
        elif re.search(r"[a-z]-$", previous) and stripped[:1].islower():
            items[-1] += stripped
        else:
            items[-1] += " " + stripped
    return simplify("\n".join(items))


def table_rows(lines: list[str]) -> list[str]:
    """A drawn table as one line a row, its cells set apart by a colon."""
    borders = [place for place, character in enumerate(lines[0]) if character == "+"]
    rows: list[str] = []
    cells: list[list[str]] = []
    for line in lines:
        if line.lstrip().startswith(("+", "|=")):
            texts = [" ".join(part for part in parts if part) for parts in cells]
            if any(texts):
                rows.append(simplify(": ".join(text for text in texts if text)))
            cells = [[] for _ in borders[1:]]
        else:
            for parts, start, end in zip(cells, borders, borders[1:], strict=False):
                parts.append(line[start + 1 : end].strip())
    return ["\n".join(rows)] if rows else []


def simplify(text: str) -> str:
    """Take the inline markup off: roles, backticks and emphasis leave their text."""
    text = ROLE.sub(r"\1", text)
    text = LITERAL.sub(lambda match: match[1] or match[2] or match[3], text)
    text = EMPHASIS.sub(r"\1\3", text)
    text = re.sub(r"\.\. (?:[\w-]+::|_[\w -]+:)\s*", "", text)
    text = re.sub(r"::(?=\n|$)", ":", text)
    return re.sub(r"[^\S\n]+", " ", text).strip()
