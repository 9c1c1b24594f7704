"""Small corpora with sections, links and turns, made from a seed."""

import random

from polyrank.data.sentences import sentence_spans
from polyrank.pretraining.split import TablesSettings
from polyrank.pretraining.tables import build_tables
from polyrank.records import (
    Article,
    Conversation,
    Link,
    Paragraph,
    Section,
    Turn,
)


def paragraph(text, *targets):
    """A paragraph whose links lie on the titles that stand in it."""
    links = []
    for target in targets:
        start = text.find(target)
        assert start >= 0, target
        links.append(Link(start, start + len(target), target))
    sentences = tuple((start, stop) for start, stop in sentence_spans(text))
    return Paragraph(text, sentences, tuple(links))


def article(title, lead, *rest, id=None):
    """An article: paragraphs of the first section, then those of each other section."""
    sections = [Section("", 1, tuple(lead))]
    sections += [Section(f"Part {n}", 2, tuple(one)) for n, one in enumerate(rest, start=1)]
    return Article(id or title, title, tuple(sections))


def random_articles(count, seed=0):
    """Articles whose every sentence is unlike any other, with links among them and outside."""
    draw = random.Random(seed)
    numbers = iter(range(10**6))

    def sentence(*names):
        filling = draw.choices(("red", "blue", "old", "new"), k=draw.randint(2, 9))
        return " ".join(["Fact", str(next(numbers)), "says", *filling, *names, "things."])

    def some_paragraph(own):
        others = [f"Page {draw.randrange(count + 3)}x" for _ in range(draw.choice((0, 0, 1, 2)))]
        targets = list(dict.fromkeys([*others, own] if draw.random() < 0.5 else others))
        sentences = [sentence() for _ in range(draw.randint(1, 5))]
        sentences[draw.randrange(len(sentences))] = sentence(*targets)
        return paragraph(" ".join(sentences), *targets)

    def section(own, fewest, most):
        return [some_paragraph(own) for _ in range(draw.randint(fewest, most))]

    for number in range(count):
        own = f"Page {number}x"
        lead = section(own, 0, 2)
        rest = [section(own, 1, 3) for _ in range(draw.randint(0, 3))]
        yield article(own, lead, *rest, id=f"id-{number}")


def random_conversations(count, seed=0):
    """Conversations of one to eight turns; some texts recur."""
    draw = random.Random(seed)
    for number in range(count):
        turns = [
            Turn(draw.choice("ab"), draw.choice(("thanks", f"turn {number} {place}. It goes on.")))
            for place in range(draw.randint(1, 8))
        ]
        yield Conversation(f"talk-{number}", tuple(turns))


def tables_of(documents, folder, **settings):
    """The tables of documents of one kind; with nothing held out unless asked for."""
    documents = list(documents)
    kind = "conversations" if isinstance(documents[0], Conversation) else "articles"
    settings = TablesSettings(**{"held_out": 0.0, **settings})
    return build_tables(documents, kind, "tiny", folder / "tables", settings)
