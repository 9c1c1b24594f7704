"""What documentation says, asked as a person would ask for it.

Turns summaries, names and titles into short questions, chosen by a stable hash. Knows nothing of
passages or splits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

MOST_WORDS = 24

VERBS = frozenset(
    """
    accept acquire add adjust append apply ask assert bind calculate call cancel change check clear
    close compare compile compute configure connect construct convert copy count create decode
    define delete destroy determine disable display do emit enable encode enter execute extend
    extract fail fetch find finish flush format generate get guess handle initialize insert install
    invoke iterate list load log look make mark move open override parse perform pop print process
    provide push put query raise read receive register release remove rename replace report request
    reset retrieve return reverse run search send serialize set sort split start stop store strip
    take test try turn update use wait wrap write yield
    """.split()  # noqa: SIM905
)
NOUN = re.compile(
    r"(?:an?|the|this|abstract|base|simple|generic|helper|context manager|exception|class|object|"
    r"function|decorator|iterator|subclass|mixin|wrapper|error|container|interface|"
    r"[\w-]+ (?:class|object|error|exception|interface|handler|server|client|iterator|type))\b",
    re.IGNORECASE,
)
RAISED = re.compile(r"(?:exception |error )?raised ((?:when|if|for|by|on) .+)", re.IGNORECASE)
TESTED = re.compile(
    r"(?:return (?:True|true|1|a true value|non-zero) (?:if|when|iff)|return (?:whether|if)|"
    r"(?:test|check|determine) (?:whether|if)|True (?:if|when)) (.+)"
)
PREFIX = re.compile(
    r"[\w.]+(?:\(\))?(?: --? | ?: )(?=\w)|(?:This|The) (?:class|function|method) (?=[a-z]+s )",
    re.IGNORECASE,
)
"""What may stand before a summary proper: `copy - ` or `This class `."""

TEMPLATES = {
    "get": "How do I get {0}?|How can I get {0} in Python?|I need {0}.|What gives me {0}?|get {0}",
    "do": "How do I {0}?|How can I {0} in Python?|I want to {0}.|What is the way to {0}?|"
    "Is there something to {0}?|How to {0}",
    "check": "How do I check {0}?|How can I tell {0}?|I need to know {0}.|How to test {0}",
    "noun": "Is there {0} in Python?|I am looking for {0}.|What can I use as {0}?",
    "raised": "Which error is raised {0}?|What happens {0}?|What exception do I get {0}?",
    "plain": "{0}|I read: {0}. Can you say more?|{0} in Python|Tell me more: {0}",
    "name": "What does {0} do?|How does {0} work?|What is {0} for?|When would I use {0}?|"
    "Explain {0}.",
    "module": "What is {0} for?|What can I do with {0}?|How do I use {0}?|Tell me about {0}.",
    "topic": "How does this work in Python: {0}?|What should I know about {0}?|Tell me about {0}.|"
    "Can you explain {0}?",
    "opening": "I am using {0}.|I have a question about {0}.",
}
"""Questions by what is asked for, separated by a bar."""


def stable_number(key: str) -> int:
    """A number that depends on the text alone: the same in every process and version."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")


def ask(kind: str, what: str, key: str) -> str:
    """One of the questions of a kind, chosen by `key`."""
    options = TEMPLATES[kind].split("|")
    return options[stable_number(key) % len(options)].format(what)


def ask_summary(summary: str, key: str) -> str:
    """The question that a summary line such as `Return the sine of x.` answers."""
    clause = first_clause(summary)
    first, _, rest = clause.partition(" ")
    verb = base_form(first)
    if raised := RAISED.match(clause):
        return ask("raised", raised[1], key)
    if tested := TESTED.match(f"{verb or first} {rest}"):
        condition = re.split(r", |; | or False| otherwise", tested[1])[0]
        return ask("check", "whether " + condition, key)
    if verb and rest:
        return ask("get", rest, key) if verb == "return" else ask("do", f"{verb} {rest}", key)
    if NOUN.match(clause):
        noun = clause if first[1:].isupper() else clause[:1].lower() + clause[1:]
        has_article = re.match(r"(?:an?|the|this)\b", noun)
        article = "" if has_article else "an " if noun[0] in "aeiou" else "a "
        return ask("noun", article + noun, key)
    return ask("plain", clause, key)


def ask_name(name: str, key: str) -> str | tuple[str, ...]:
    """A question by name, sometimes after a turn that names the module."""
    scope, _, last = name.rpartition(".")
    if scope and stable_number(key + "turn") % 4 == 0:
        return (ask("opening", scope, key + "opening"), ask("name", last, key))
    return ask("name", name, key)


def ask_title(title: str, key: str) -> str:
    """A question for a module, for a topic or for a section of one, by its title."""
    what = title.replace("The ", "the ", 1).replace(": ", ", ")
    return ask("module" if title.endswith(" module") else "topic", what, key)


def base_form(word: str) -> str | None:
    """`return` of `Returns`; None for what is not a known verb."""
    word = word.lower()
    forms: Sequence[str] = (word, word.removesuffix("s"), word.removesuffix("es"))
    return next((form for form in forms if form in VERBS), None)


def first_clause(summary: str) -> str:
    """A summary without its full stop and afterthoughts, at most 24 words."""
    clause = " ".join(summary.split()).rstrip(".:;, ")
    if prefix := PREFIX.match(clause):
        clause = clause[prefix.end() :]
    clause = re.sub(r"\s*\([^()]*\)", "", clause)
    return " ".join(clause.split()[:MOST_WORDS])
