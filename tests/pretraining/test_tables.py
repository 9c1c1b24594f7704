import json
import pickle
from types import SimpleNamespace

import pytest
from tiny_corpora import article, paragraph, random_articles, random_conversations, tables_of

from polyrank.errors import DataError, UsageError
from polyrank.pretraining.corpus.convert import convert
from polyrank.pretraining.split import TablesSettings
from polyrank.pretraining.table_files import OneBlockTable, Spool
from polyrank.pretraining.tables import CorpusTables, build_tables, open_tables
from polyrank.records import Article, Conversation, Section, Turn


def every(texts):
    return [texts[number] for number in range(len(texts))]


def resident_kib(path):
    """How much of a mapped file is in the memory of this process."""
    total, inside = 0, False
    with open("/proc/self/smaps") as lines:
        for line in lines:
            if "-" in line.split(" ")[0]:
                inside = line.rstrip().endswith(str(path))
            elif inside and line.startswith("Rss:"):
                total += int(line.split()[1])
    return total


def test_passages_sentences_and_titles_come_back(tmp_path):
    articles = list(random_articles(40))
    side = tables_of(articles, tmp_path, passage_words=30).articles("train")
    assert every(side.titles) == [
        one.title for one in articles if any(section.paragraphs for section in one.sections)
    ]
    expected = [
        one.text[start:stop]
        for each in articles
        for section in each.sections
        for one in section.paragraphs
        for start, stop in one.sentences
    ]
    assert [side.sentence(number) for number in range(len(side.starts))] == expected
    for passage in range(len(side.passages)):
        text = side.passages[passage]
        for number, (start, stop) in enumerate(side.spans(passage)):
            sentence = side.sentences_start[passage] + number
            assert text[start:stop] == side.sentence(sentence)
            assert side.passage_of(sentence) == passage


def test_passages_do_not_cross_sections(tmp_path):
    articles = list(random_articles(30))
    side = tables_of(articles, tmp_path, passage_words=1000).articles("train")
    by_title = {one.title: one for one in articles}
    for passage in range(len(side.passages)):
        sections = by_title[side.title(passage)].sections
        texts = [" ".join(one.text for one in section.paragraphs) for section in sections]
        assert side.passages[passage] in texts
        assert side.is_lead(passage) == (side.passages[passage] == texts[0])


def test_links_are_those_of_the_passage_to_other_articles(tmp_path):
    articles = list(random_articles(30))
    side = tables_of(articles, tmp_path, passage_words=1000).articles("train")
    with_lead = {one.title for one in articles if one.sections[0].paragraphs}
    found = 0
    for passage in range(len(side.passages)):
        own = side.title(passage)
        words = {f"Page {n}x" for n in range(33) if f"Page {n}x " in side.passages[passage]}
        linked = {side.titles[target] for target in side.links_of(passage)}
        assert linked == (words & with_lead) - {own}
        found += len(linked)
    assert found == len(side.links) > 20


def test_titles_differ_by_underscores_at_most_and_the_first_of_two_is_meant(tmp_path):
    lead = [paragraph("This is a lead of some words.")]
    articles = [
        article("New  York", lead, id="1"),
        article("New York", lead, id="2"),
        article("Other", [paragraph("It lies near New_York in the east.", "New_York")], id="3"),
    ]
    side = tables_of(articles, tmp_path).articles("train")
    assert side.links_of(2) == [0]


def test_sides_know_nothing_of_each_other(tmp_path):
    tables = tables_of(random_articles(60), tmp_path, held_out=0.4)
    train, held_out = tables.articles("train"), tables.articles("held_out")
    titles = [set(every(side.titles)) for side in (train, held_out)]
    assert titles[0]
    assert titles[1]
    assert not titles[0] & titles[1]
    assert len(train.links)
    assert len(held_out.links)
    counts = tables.counts["held_out"]
    assert counts["articles"] == len(held_out.titles)
    assert counts["links"] == len(held_out.links)
    assert counts["sentences"] == len(held_out.starts)


def test_listed_ids_are_held_out_and_must_be_there(tmp_path):
    tables = tables_of(random_articles(9), tmp_path, held_out_ids=("id-3",))
    side = tables.articles("held_out")
    assert every(side.ids) == ["id-3"]
    with pytest.raises(UsageError, match=r"1 of the ids .* 'nobody'"):
        tables_of(random_articles(9), tmp_path, held_out_ids=("id-3", "nobody"))
    assert CorpusTables(tables.path).counts == tables.counts  # what was there stays


def test_tables_of_nothing(tmp_path):
    for kind in ("articles", "conversations"):
        tables = build_tables([], kind, "none", tmp_path / kind, TablesSettings())
        assert set(tables.counts["train"].values()) == {0}
    assert len(tables.conversations("train").turns) == 0


def test_articles_without_text_are_left_out(tmp_path):
    empty = Article("e", "Empty", (Section("", 1, ()),))
    side = tables_of([empty, article("Full", [paragraph("A text.")])], tmp_path).articles("train")
    assert every(side.titles) == ["Full"]


def test_a_first_section_with_a_heading_is_no_lead(tmp_path):
    section = Section("History", 2, (paragraph("It began in the year 1900."),))
    side = tables_of([Article("a", "A", (section,))], tmp_path).articles("train")
    assert len(side.leads) == 0
    assert list(side.rest_of(0)) == [0]


def test_turns_of_one_speaker_are_merged_if_asked(tmp_path):
    turns = [("a", "Hi."), ("a", "Is it on?"), ("b", " "), ("b", "Yes."), ("", "x"), ("", "y")]
    talk = Conversation("t", tuple(Turn(*turn) for turn in turns))
    merged = tables_of([talk], tmp_path / "1").conversations("train")
    assert every(merged.turns) == [
        "Hi. Is it on?",
        "Yes.",
        "x",
        "y",
    ]
    apart = tables_of([talk], tmp_path / "2", merge_speaker=False).conversations("train")
    assert every(apart.turns) == [
        "Hi.",
        "Is it on?",
        "Yes.",
        "x",
        "y",
    ]
    assert list(apart.replies) == [1, 2, 3, 4]
    assert apart.turns_before(3, 2) == ("Is it on?", "Yes.")
    assert apart.turns_before(1, 5) == ("Hi.",)


def test_conversations_begin_where_they_should(tmp_path):
    talks = list(random_conversations(50))
    side = tables_of(talks, tmp_path, merge_speaker=False).conversations("train")
    place = 0
    for number, talk in enumerate(talks):
        for turn in talk.turns:
            assert side.turns[place] == turn.text
            assert side.conversation_of(place) == number
            place += 1
    assert len(side.turns) == place


def test_texts_of_any_script_come_back(tmp_path):
    text = "서울은 대한민국의 수도이다. 한강이 도시를 가로지른다. 𝔘nicode 😀 works."
    side = tables_of([article("서울", [paragraph(text)])], tmp_path).articles("train")
    assert side.passages[0] == text
    assert side.sentence(1) == "한강이 도시를 가로지른다."
    assert side.titles[0] == "서울"


class FiveArticles(SimpleNamespace):
    """A corpus; `taken` has its fingerprint once for each time that it was read."""

    kind = "articles"
    fingerprint = "one"

    def __len__(self):
        return 5

    def __iter__(self):
        self.taken.append(self.fingerprint)
        return random_articles(5)


def test_tables_are_built_once_and_anew_for_other_settings(tmp_path):
    taken = []
    corpus = FiveArticles(path=tmp_path, taken=taken)
    first = open_tables(corpus)
    assert open_tables(corpus).path == first.path
    assert taken == ["one"]
    assert open_tables(corpus, TablesSettings(passage_words=50)).path != first.path
    corpus.fingerprint = "two"
    assert open_tables(corpus).path not in (first.path,)
    assert taken == ["one", "one", "two"]
    assert all(path.name.startswith(".tables-") for path in tmp_path.iterdir())


def test_a_damaged_table_is_told(tmp_path):
    corpus = FiveArticles(path=tmp_path, taken=[])
    files = [path for path in open_tables(corpus).path.glob("*/*") if path.stat().st_size]
    assert len(files) == 16
    for number, file in enumerate(files):
        whole = file.read_bytes()
        place = number * len(whole) // len(files)
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DataError, match=rf"{file.name}.*its checksum differs"):
            open_tables(corpus)
        file.write_bytes(whole)
    open_tables(corpus)
    file.unlink()
    with pytest.raises(DataError, match=rf"{file.name}.*its checksum differs"):
        open_tables(corpus)


@pytest.mark.parametrize("kind", ["articles", "conversations"])
def test_tables_of_a_corpus_on_the_disk(kind, tmp_path):
    turns = [{"speaker": "a", "text": "Is it on?"}, {"speaker": "b", "text": "It is."}]
    sections = [{"heading": "", "paragraphs": ["It is a town. It lies by the sea."]}]
    documents = {
        "articles": {"id": "1", "title": "A town", "sections": sections},
        "conversations": {"id": "1", "turns": turns},
    }
    source = tmp_path / "source.jsonl"
    source.write_text(json.dumps(documents[kind]) + "\n", encoding="utf-8")
    corpus = convert(source, tmp_path / "corpus")
    tables = open_tables(corpus, TablesSettings(held_out=0.0))
    assert tables.path.parent == corpus.path
    assert tables.kind == kind
    if kind == "articles":
        assert tables.articles("train").sentence(1) == "It lies by the sea."
    else:
        assert every(tables.conversations("train").turns) == ["Is it on?", "It is."]
    elsewhere = open_tables(corpus, TablesSettings(held_out=0.0), place=tmp_path)
    assert elsewhere.path.parent == tmp_path
    assert elsewhere.counts == tables.counts


def test_tables_can_be_sent_to_another_process(tmp_path):
    tables = tables_of(random_articles(8), tmp_path)
    copy = pickle.loads(pickle.dumps(tables))
    assert copy.articles("train").passages[3] == tables.articles("train").passages[3]
    side = pickle.loads(pickle.dumps(tables.articles("train")))
    assert side.titles[1] == tables.articles("train").titles[1]


def test_no_tables_are_told(tmp_path):
    with pytest.raises(DataError, match="it is rebuilt"):
        CorpusTables(tmp_path)
    (tmp_path / "tables.json").write_text('{"version": 0}')
    with pytest.raises(DataError, match="version"):
        CorpusTables(tmp_path)
    tables = tables_of(random_articles(3), tmp_path)
    (tables.path / "train" / "ict.arrow").unlink()
    with pytest.raises(DataError, match=r"ict\.arrow"):
        CorpusTables(tables.path).articles("train")


def test_what_is_read_is_mapped_and_not_the_rest(tmp_path):
    spool = Spool(tmp_path, "long", {"text": "text"})
    for number in range(200):
        spool["text"].append(f"{number} " + "x" * 100_000)
    file = tmp_path / "long.arrow"
    spool.write(file)
    assert file.stat().st_size > 19e6
    texts = OneBlockTable(tmp_path, "long").text_sequence("text")
    assert texts[100].startswith("100 x")
    assert texts[199].startswith("199 x")
    try:
        assert 0 < resident_kib(file) < 2048
    except FileNotFoundError:
        pytest.skip("the system does not say what is in memory")


def test_columns_longer_than_a_block(tmp_path):
    spool = Spool(tmp_path, "n", {"short": "uint32", "long": "uint64"})
    for start in range(0, 200_000, 50):
        spool["short"].extend(range(start, start + 50))
        spool["long"].extend(range(start << 32, (start + 50) << 32, 1 << 32))
    spool.write(tmp_path / "n.arrow")
    table = OneBlockTable(tmp_path, "n")
    assert list(table.sequence("short")) == list(range(200_000))
    assert list(table.sequence("long")) == [number << 32 for number in range(200_000)]
    Spool(tmp_path, "empty", {"n": "uint64", "text": "text"}).write(tmp_path / "empty.arrow")
    empty = OneBlockTable(tmp_path, "empty")
    assert len(empty.sequence("n")) == len(empty.text_sequence("text")) == 0
