"""The parts of the protocol's sets: whole groups, the same every time, candidates with one gold."""

import json
import lzma
import random

import pytest
from benchmarks.articles import squad_examples
from benchmarks.dialogues import conversation_of

from benchmarks import articles, parts
from polyrank.data.examples import read_examples
from tiny_encoders import WORDS

DAYS = 30
REPLIES = 12


def write_lines(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(path, "wt", encoding="utf-8") as handle:
        handle.writelines(json.dumps(record) + "\n" for record in records)


def sentence(draw, words=WORDS, length=7):
    return " ".join(draw.choices(words, k=length))


def reply(draw, day, number, **more):
    name = f"2004-01-{day:02}.train-a:{number}"
    return {"id": name, "context": [sentence(draw)], "response": sentence(draw), **more}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Small sets in the form of the real ones."""
    folder, draw = tmp_path_factory.mktemp("sets"), random.Random(0)
    replies = [reply(draw, day, number) for day in range(DAYS) for number in range(REPLIES)]
    short = {**reply(draw, 1, 99), "response": "two words"}
    write_lines(folder / "ubuntu_irc/train.jsonl.xz", [*replies, short])
    dev = reply(draw, 31, 0)
    dev["candidates"], dev["gold"] = [dev["response"], "another reply"], 0
    write_lines(folder / "ubuntu_irc/dev.jsonl.xz", [dev])
    dialogues = [
        {
            "id": f"1_{number:05}",
            "services": [f"Service_{number % DAYS}", "Common_1"],
            "turns": [{"text": sentence(draw)} for _ in range(12)],
        }
        for number in range(3 * DAYS)
    ]
    write_lines(folder / "sgd/dialogs.train.jsonl.xz", dialogues)
    write_lines(folder / "sgd/dev.jsonl.xz", [dev])
    return folder


def groups_of(data, name, examples):
    if name == "ubuntu_irc":
        return {conversation_of(each) for each in examples}
    with lzma.open(data / "sgd/dialogs.train.jsonl.xz", "rt") as handle:
        services = {one["id"]: one["services"][0] for one in map(json.loads, handle)}
    return {services[conversation_of(each)] for each in examples}


@pytest.mark.parametrize("name", ["ubuntu_irc", "sgd"])
def test_groups_never_straddle(data, tmp_path, name):
    made = parts.parts_of(data, name, tmp_path)
    train, choose = (groups_of(data, name, part) for part in (made.train, made.choose))
    assert train
    assert choose
    assert not train & choose
    assert {parts.share_of(group) for group in choose} == {0}
    assert 0 not in {parts.share_of(group) for group in train}


@pytest.mark.parametrize("name", ["ubuntu_irc", "sgd"])
def test_candidates_hold_the_gold_once_and_come_from_the_part(data, tmp_path, name):
    made = parts.parts_of(data, name, tmp_path)
    responses = {each.response for each in made.choose}
    for each in made.choose:
        assert len(set(each.candidates)) == len(each.candidates) == parts.NUM_CANDIDATES
        assert each.candidates[each.gold] == each.response
        assert set(each.candidates) <= responses


def test_parts_are_the_same_every_time(data, tmp_path):
    first, again, read = (
        parts.parts_of(data, "ubuntu_irc", tmp_path / folder) for folder in ("a", "b", "a")
    )
    assert first == again == read


def test_candidates_do_not_depend_on_the_other_examples(data):
    made = parts.dialogue_parts(data, "ubuntu_irc").choose
    _, source = parts.divided(parts.grouped_training_examples(data, "ubuntu_irc"))
    assert parts.with_drawn_candidates(made[3:5], source) == made[3:5]


def test_at_most_so_many_of_the_lowest_ids(data, monkeypatch):
    _, source = parts.divided(parts.grouped_training_examples(data, "ubuntu_irc"))
    few, more = parts.fewest_first(source, 5), parts.fewest_first(source, 9)
    assert len(few) == 5
    assert more[:5] == few
    assert parts.fewest_first(source[::-1], 5) == few


def test_short_replies_are_in_no_part(data, tmp_path):
    made = parts.parts_of(data, "ubuntu_irc", tmp_path)
    assert all(each.response != "two words" for each in (*made.train, *made.choose))


@pytest.fixture(scope="module")
def squad(tmp_path_factory):
    """Articles of 30 sentences, each with words of its own, and a question for each sentence."""
    folder, draw = tmp_path_factory.mktemp("squad"), random.Random(1)
    corpus, queries, judged = [], [], ["query-id\tcorpus-id\tscore"]
    for article in range(24):
        words = [f"word{article}x{number}" for number in range(12)]
        for _ in range(30):
            number = len(corpus)
            text = sentence(draw, [*words, "common"], 9) + f" number{number}"
            corpus.append({"_id": f"dev-{number}", "title": "", "text": text})
            queries.append({"_id": f"dev-q{number}", "text": f"{sentence(draw, words, 4)}?"})
            judged.append(f"dev-q{number}\tdev-{number}\t1")
    own = folder / "squad_sentences"
    write_lines(own / "corpus.jsonl.xz", corpus)
    write_lines(own / "queries.jsonl.xz", queries)
    (own / "qrels").mkdir()
    (own / "qrels/dev.tsv").write_text("\n".join(judged) + "\n")
    return folder


def test_articles_begin_where_the_words_change(squad):
    _, groups = squad_examples(squad)
    assert list(groups) == [f"dev-{30 * article}" for article in range(24)]
    assert {len(members) for members in groups.values()} == {30}


def test_articles_that_are_alike_are_one_group():
    texts = [f"same words throughout number{row}" for row in range(100)]
    assert articles.beginnings(texts) == []


def test_questions_of_an_article_are_in_one_part(squad, bert):
    made = parts.squad_parts(squad, bert)
    grouped, sentences = squad_examples(squad)
    group_of = {each.id: group for group, each in grouped}
    shares = [
        {parts.share_of(group_of[each.id]) for each in part}
        for part in (made.choose, made.dev, made.train)
    ]
    assert shares == [{0}, set(parts.SQUAD_DEV), {3, 4, 5, 6, 7}]
    texts = {each.text: group for group, members in sentences.items() for each in members}
    for part, own in ((made.choose, {0}), (made.dev, set(parts.SQUAD_DEV))):
        for each in part:
            assert len(set(each.candidates)) == len(each.candidates) == parts.NUM_CANDIDATES
            assert each.candidates[each.gold] == each.response
            assert {parts.share_of(texts[text]) for text in each.candidates} <= own


def test_mined_negatives_are_other_responses_of_train(squad, bert, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "default_base", lambda: bert)
    file, mean = parts.mined_training(squad, "squad_sentences", tmp_path)
    trained = list(read_examples(tmp_path / "parts" / "squad_sentences" / "train.jsonl"))
    responses = {each.response for each in trained}
    mined = list(read_examples(file))
    assert [each.context for each in mined] == [each.context for each in trained]
    assert mean == sum(len(each.negatives) for each in mined) / len(mined)
    for each in mined:
        assert 3 <= len(each.negatives) <= 6
        assert len(set(each.negatives)) == len(each.negatives)
        assert set(each.negatives) <= responses - {each.response}
