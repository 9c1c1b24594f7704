"""What documentation says, asked as a person would ask for it.

Turns summaries, names and arguments into short questions, chosen by a stable hash. Knows nothing
of passages or splits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

MOST_WORDS = 24

VERBS = frozenset(
    """
    abort accept access acquire add adjust advance allocate allow analyze append apply ask
    assert assign associate attach await begin bind block break bring build calculate call
    cancel catch change check choose clean clear clone close collapse collect combine compare
    compile complete compress compute configure connect construct consume convert copy count
    create cut deallocate decide decode decompress decorate decrease define delegate delete
    deliver dequeue describe deserialize destroy detach detect determine disable disassemble
    discard disconnect dispatch display divide do draw dump duplicate embed emit enable encode
    encrypt end ensure enter enumerate erase escape establish evaluate examine exchange exec
    execute exit expand explain export expose extend extract fail feed fetch fill filter find
    finish fix flatten flush fold force forget fork format generate get give go group guess
    handle hash hide highlight hold identify ignore implement import increase indicate infer
    initialize initiate insert inspect install instantiate interpret introduce invalidate invert
    invoke issue iterate join keep kill launch leave let limit list listen load locate lock log
    login look lookup lower make manage map mark match measure merge modify move multiply
    normalize notify obtain offer open override pack parse pass pause peek perform pick place
    play plot poll pop post prepare prepend preserve prevent print process produce prompt
    protect provide pull push put quantize query quit quote raise randomize read reap rebuild
    receive recompute reconstruct record redirect redisplay reduce refresh register reject
    release reload rely remove rename render reopen repeat replace reply report request require
    resend reset resize resolve respond restore restrict resume retrieve retry return reverse
    rewind roll rotate round run save scan schedule scroll search seek select send separate
    serialize serve set setup shift shorten show shuffle shut shutdown signal simplify skip
    sleep solve sort spawn specify split squeeze start stop store strip subscribe substitute
    subtract supply suspend swap switch synchronize take tell terminate test throw toggle
    tokenise tokenize touch trace track transfer transform translate transmit traverse trigger
    trim truncate try turn unbind uncompress undo unescape uninstall unlink unload unlock unpack
    unquote unregister unwrap update upload use validate verify visit wait wake walk warn watch
    wrap write yank yield
    """.split()  # noqa: SIM905
)
IRREGULAR = {"does": "do", "goes": "go", "tries": "try", "copies": "copy", "queries": "query"}
NOUN = re.compile(
    r"(?:an?|the|this|abstract|base|simple|generic|helper|context manager|exception|class|object|"
    r"function|decorator|iterator|subclass|mixin|wrapper|error|container|interface|support|"
    r"[\w-]+ (?:class|object|error|exception|interface|handler|widget|server|client|iterator|type)"
    r")\b",
    re.IGNORECASE,
)
RAISED_CLAUSE = re.compile(
    r"(?:exception |error )?raised ((?:when|if|for|by|on) .+)", re.IGNORECASE
)
TESTED = re.compile(
    r"(?:return (?:True|true|1|a true value|non-zero|a bool\w*) (?:if|when|iff)|"
    r"return (?:whether|if)|(?:test|check|determine) (?:whether|if)|True (?:if|when)) (.+)"
)
PREFIX = re.compile(
    r"[\w.]+(?:\(\))?(?: --? | ?: )(?=\w)|"
    r"(?:[Tt]his|[Tt]he) (?:class|function|method|routine) (?=[a-z]+s )"
)
"""What may stand before a summary proper: `copy - ` or `This class `."""

GET = (
    "How do I get {0}?",
    "How can I get {0} in Python?",
    "I need {0}.",
    "How do I find out {0}?",
    "What gives me {0}?",
    "get {0}",
)
DO = (
    "How do I {0}?",
    "How can I {0} in Python?",
    "I want to {0}.",
    "What is the way to {0}?",
    "Is there something to {0}?",
    "How to {0}",
)
CHECK = (
    "How do I check {0}?",
    "How can I tell {0} in Python?",
    "I need to know {0}.",
    "How to test {0}",
)
NOUNS = (
    "Is there {0} in Python?",
    "I am looking for {0}.",
    "What can I use as {0}?",
    "Where do I find {0}?",
)
RAISED = ("Which error is raised {0}?", "What happens {0}?", "What exception do I get {0}?")
PLAIN = ("{0}", "I read: {0}. Can you say more?", "{0} in Python", "Tell me more: {0}")
NAMED = (
    "What does {0} do?",
    "How does {0} work?",
    "What is {0} for?",
    "When would I use {0}?",
    "Explain {0}.",
)
ARGUMENTS = (
    "What does the {1} argument of {0} do?",
    "What is {1} in {0}?",
    "How do I use {1} with {0}?",
    "What can I pass as {1} to {0}?",
)
MODULES = (
    "What is {0} for?",
    "What can I do with {0}?",
    "How do I use {0}?",
    "Tell me about {0}.",
)
TOPICS = (
    "How does this work in Python: {0}?",
    "What should I know about {0}?",
    "Tell me about {0}.",
    "Can you explain {0}?",
)


def stable_number(key: str) -> int:
    """A number that depends on the text alone: the same in every process and version."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")


def pick(options: Sequence[str], key: str) -> str:
    """One of the options, chosen by `key`."""
    return options[stable_number(key) % len(options)]


def ask_summary(summary: str, key: str) -> str:
    """The question that a summary line such as `Return the sine of x.` answers."""
    clause = first_clause(summary)
    first, _, rest = clause.partition(" ")
    verb = base_form(first)
    if raised := RAISED_CLAUSE.match(clause):
        return pick(RAISED, key).format(raised[1])
    if tested := TESTED.match(f"{verb or first} {rest}"):
        condition = re.split(r", |; | or False|, otherwise| otherwise", tested[1])[0]
        return pick(CHECK, key).format("whether " + condition)
    if verb == "return" and rest:
        return pick(GET, key).format(rest)
    if verb and rest:
        return pick(DO, key).format(f"{verb} {rest}")
    if NOUN.match(clause):
        return pick(NOUNS, key).format(with_article(lower_first(clause)))
    return pick(PLAIN, key).format(clause)


def ask_name(name: str, key: str) -> str | tuple[str, ...]:
    """A question by name, sometimes after a turn that names the module."""
    scope, _, last = name.rpartition(".")
    if scope and stable_number(key + "turn") % 4 == 0:
        opening = pick(("I am using {0}.", "I have a question about {0}."), key + "opening")
        return (opening.format(scope), pick(NAMED, key).format(last))
    return pick(NAMED, key).format(name)


def ask_argument(name: str, argument: str, key: str) -> str:
    """A question for what an argument of a function means."""
    return pick(ARGUMENTS, key).format(name, argument)


def ask_topic(title: str, key: str) -> str:
    """A question for a topic or for a section of one, by its title."""
    if title.startswith("The "):
        title = "the " + title.removeprefix("The ")
    options = MODULES if title.endswith(" module") else TOPICS
    return pick(options, key).format(title.replace(": ", ", "))


def base_form(word: str) -> str | None:
    """`return` of `Returns`; None for what is no known verb."""
    word = word.lower()
    for form in (word, IRREGULAR.get(word, ""), word.removesuffix("s"), word.removesuffix("es")):
        if form in VERBS:
            return form
    return None


def first_clause(summary: str) -> str:
    """A summary without its full stop and afterthoughts, at most 24 words."""
    clause = " ".join(summary.split()).rstrip(".:;, ")
    if prefix := PREFIX.match(clause):
        clause = clause[prefix.end() :]
    clause = re.sub(r"\s*\([^()]*\)", "", clause)
    words = clause.split()
    if len(words) > MOST_WORDS:
        shorter = re.split(r"[;,:] | - | -- |\. ", clause)[0]
        clause = (
            shorter if 4 <= len(shorter.split()) <= MOST_WORDS else " ".join(words[:MOST_WORDS])
        )
    return clause


def lower_first(text: str) -> str:
    """The text with a small first letter, unless its first word is a name or an abbreviation."""
    first = text.partition(" ")[0]
    return text[:1].lower() + text[1:] if first[1:].islower() or len(first) == 1 else text


def with_article(noun: str) -> str:
    """`an object …` of `object …`; what has an article keeps it."""
    if re.match(r"(?:an?|the|this|support)\b", noun):
        return noun.replace("this ", "the ", 1) if noun.startswith("this ") else noun
    return f"{'an' if noun[:1] in 'aeiouAEIO' else 'a'} {noun}"
