import pickle
from collections import Counter

import pytest
from tiny_corpora import article, paragraph, random_articles, random_conversations, tables_of

from polyrank.errors import DataError, UsageError
from polyrank.pretraining.pairs import (
    FOLLOWS,
    RELATED,
    UNRELATED,
    link_key,
    page_key,
    passage_key,
    rest_key,
    text_key,
)
from polyrank.pretraining.registry import TASKS, TaskSettings, make_task
from polyrank.pretraining.tasks.bfs import Bfs, BfsSettings
from polyrank.pretraining.tasks.cmae import Cmae, CmaeSettings
from polyrank.pretraining.tasks.ict import Ict, IctSettings
from polyrank.pretraining.tasks.mlm import Mlm, MlmSettings
from polyrank.pretraining.tasks.next_sentence import NextSentence, NextSentenceSettings
from polyrank.pretraining.tasks.next_utterance import NextUtterance, NextUtteranceSettings
from polyrank.pretraining.tasks.wlp import Wlp, WlpSettings
from polyrank.records import Conversation, Turn

ON_ARTICLES = ["ict", "bfs", "wlp", "next_sentence", "mlm", "cmae"]


@pytest.fixture(scope="module")
def articles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("articles")
    return tables_of(random_articles(150), folder, held_out=0.3, passage_words=40)


@pytest.fixture(scope="module")
def conversations(tmp_path_factory):
    folder = tmp_path_factory.mktemp("conversations")
    return tables_of(random_conversations(200), folder, held_out=0.3)


def one_pass(task, number=0):
    return [task[number * len(task) + item] for item in range(len(task))]


def counted(task, passes):
    """How many times each passage is the document, a pass."""
    counts = Counter(pair.passage for n in range(passes) for pair in one_pass(task, n))
    return {passage: count / passes for passage, count in counts.items()}


@pytest.mark.parametrize("name", TASKS)
def test_an_item_is_the_same_alone_in_another_process_and_in_sequence(
    name, articles, conversations
):
    tables = conversations if name == "next_utterance" else articles
    task = make_task(name, tables, seed=3)
    pairs = [task[number] for number in range(2 * len(task))]
    again = pickle.loads(pickle.dumps(make_task(name, tables, seed=3)))
    assert list(again) == pairs[: len(task)]
    for number in (2 * len(task) - 1, 0, len(task), 7):
        assert again[number] == pairs[number]
    assert all(pair.task == name for pair in pairs)
    if name != "wlp":
        other = make_task(name, tables, seed=4)
        drawn = name != "mlm" or tables is articles
        assert (one_pass(other) != pairs[: len(task)]) == drawn
    with pytest.raises(IndexError):
        task[-1]


@pytest.mark.parametrize("name", ["ict", "bfs", "wlp", "next_sentence"])
def test_another_pass_draws_anew(name, articles):
    task = make_task(name, articles)
    assert one_pass(task) != one_pass(task, 1)


@pytest.mark.parametrize("name", ON_ARTICLES)
def test_no_sentence_of_one_side_is_on_the_other(name, articles):
    sides = []
    for split in ("train", "held_out"):
        task = make_task(name, articles, split)
        pairs = one_pass(task) + one_pass(task, 1)
        texts = " ".join(f"{pair.first} {pair.second}" for pair in pairs)
        sides.append({word for word in texts.split() if word.isdigit()})  # of pages: 12x
        assert len(pairs) > 20
    assert sides[0]
    assert not sides[0] & sides[1]


def test_ict_has_each_sentence_once_with_the_rest_of_its_passage(articles):
    task = Ict(articles, "train", 1)
    side = articles.articles("train")
    pairs = one_pass(task)
    queries = [pair.first for pair in pairs]
    assert len(set(queries)) == len(queries)
    expected = {
        side.passages[passage][start:stop]
        for passage in range(len(side.passages))
        for start, stop in side.spans(passage)
        if len(side.spans(passage)) > 1
    }
    assert set(queries) == expected
    for pair in pairs:
        whole = side.passages[pair.passage]
        assert pair.first in whole
        assert pair.second_title == side.title(pair.passage)
        if pair.first in pair.second:
            assert pair.second == whole
        else:
            assert sorted([*pair.second.split(), *pair.first.split()]) == sorted(whole.split())
            assert "  " not in pair.second


def test_ict_keeps_the_sentence_as_often_as_asked(articles):
    task = Ict(articles, "train", 1)
    pairs = [pair for number in range(5) for pair in one_pass(task, number)]
    kept = sum(pair.first in pair.second for pair in pairs) / len(pairs)
    assert len(pairs) > 3000
    assert 0.08 < kept < 0.12
    for share in (0.0, 1.0):
        pairs = one_pass(Ict(articles, "train", 1, IctSettings(keep_sentence=share)))
        assert all((pair.first in pair.second) == bool(share) for pair in pairs)


def test_ict_takes_out_every_repetition_of_the_sentence(tmp_path):
    text = "It is a red house. It stands in a town. It is a red house."
    tables = tables_of([article("House", [paragraph(text)])], tmp_path)
    pairs = one_pass(Ict(tables, settings=IctSettings(keep_sentence=0)))
    assert [pair.second for pair in pairs] == [
        "It stands in a town.",
        "It is a red house. It is a red house.",
        "It stands in a town.",
    ]


def test_bfs_goes_from_each_lead_sentence_to_the_rest_of_the_article(articles):
    side = articles.articles("train")
    pairs = one_pass(Bfs(articles, "train", 1))
    assert len({pair.first for pair in pairs}) == len(pairs)
    for pair in pairs:
        assert not side.is_lead(pair.passage)
        assert pair.second == side.passages[pair.passage]
        own = side.article[pair.passage]
        leads = range(side.passages_start[own], side.rest_start[own])
        assert any(pair.first in side.passages[lead] for lead in leads)
        assert pair.second_title == side.titles[own]
        assert pair.wanted == {rest_key(own)}
        assert rest_key(own) in pair.answers


def test_bfs_may_take_any_other_passage_of_the_article(articles):
    side = articles.articles("train")
    task = Bfs(articles, "train", 1, BfsSettings(any_section=True))
    drawn = Counter()
    for number in range(20):
        for pair in one_pass(task, number):
            own = side.article[pair.passage]
            assert pair.second == side.passages[pair.passage]
            assert pair.first not in pair.second
            assert any(pair.first in side.passages[one] for one in side.passages_of(own))
            assert pair.wanted == {page_key(own)} <= pair.answers
            drawn[pair.passage] += 1
    assert {side.is_lead(passage) for passage in drawn} == {True, False}


@pytest.mark.parametrize("any_passage", [False, True])
def test_wlp_goes_from_a_lead_sentence_to_a_page_that_links_there(articles, any_passage):
    side = articles.articles("train")
    task = Wlp(articles, "train", 1, WlpSettings(any_passage=any_passage))
    seen = Counter()
    for pair in one_pass(task):
        page = side.article[pair.passage]
        own = side.passages_of(page)
        passages = own if any_passage else [pair.passage]
        linked = {target for passage in passages for target in side.links_of(passage)}
        (target,) = (key >> 2 for key in pair.wanted)
        assert pair.wanted == {link_key(target)} <= pair.answers
        assert target in linked
        assert target != page
        leads = range(side.passages_start[target], side.rest_start[target])
        assert any(pair.first in side.passages[lead] for lead in leads)
        assert pair.second_title == side.titles[page] != side.titles[target]
        assert pair.second == side.passages[pair.passage]
        seen[pair.passage, target] += 1
    if not any_passage:
        assert set(seen.values()) == {1}


@pytest.mark.parametrize(
    "make",
    [
        Ict,
        Wlp,
        Bfs,
        lambda tables: Bfs(tables, settings=BfsSettings(any_section=True)),
        lambda tables: Wlp(tables, settings=WlpSettings(any_passage=True)),
    ],
)
def test_frequencies_are_the_counted_ones(make, articles):
    task = make(articles)
    side = articles.articles("train")
    exact = isinstance(task, Ict) or (isinstance(task, Wlp) and not task.settings.any_passage)
    expected = [task.frequency(passage) for passage in range(len(side.passages))]
    assert sum(expected) == pytest.approx(len(task))
    passes = 1 if exact else 150
    counts = counted(task, passes)
    for passage, frequency in enumerate(expected):
        tolerance = 0 if exact else 5 * (max(frequency, 0.05) / passes) ** 0.5
        assert counts.get(passage, 0.0) == pytest.approx(frequency, abs=tolerance)
    assert all(pair.frequency == expected[pair.passage] for pair in one_pass(task))


def test_accidental_hits_are_the_right_ones(tmp_path):
    lead = "Seoul is a large old city."
    tables = tables_of(
        [
            article("Seoul", [paragraph(lead)], [paragraph("Its river is the Han. It is wide.")]),
            article(
                "Han",
                [paragraph("The Han is a broad river.")],
                [paragraph("It flows by Seoul to the sea. It is long.", "Seoul")],
                [paragraph("It is clean and cold now. Fish live there.")],
            ),
        ],
        tmp_path,
        min_query_words=3,
    )
    bfs, wlp = one_pass(Bfs(tables)), one_pass(Wlp(tables))
    assert [pair.first for pair in bfs] == [lead, "The Han is a broad river."]
    assert len(wlp) == 1
    assert wlp[0].first == lead
    assert wlp[0].second.startswith("It flows by Seoul")
    assert bfs[1].wanted & wlp[0].answers  # it could have been drawn for Han
    assert not bfs[0].wanted & wlp[0].answers
    ict = {pair.first: pair for pair in one_pass(Ict(tables))}
    river, sea = ict["Its river is the Han."], ict["It flows by Seoul to the sea."]
    assert ict["It is wide."].answers == river.answers
    assert river.wanted & ict["It is wide."].answers
    assert not river.wanted & sea.answers
    assert wlp[0].wanted & sea.answers
    assert sea.wanted == {passage_key(sea.passage)}


def test_next_sentence_shows_segments_of_one_passage_or_of_two_articles(articles):
    side = articles.articles("train")
    task = NextSentence(articles, "train", 2, NextSentenceSettings(segment_words=25))
    owner = {}
    for passage in range(len(side.passages)):
        for start, stop in side.spans(passage):
            owner[side.passages[passage][start:stop].split()[1]] = passage
    labels = Counter()
    starts = []
    for pair in one_pass(task) + one_pass(task, 1):
        first, second = (owner[text.split()[1]] for text in (pair.first, pair.second))
        joined = f"{pair.first} {pair.second}"
        assert (joined in side.passages[first]) == (pair.label == 1)
        if pair.label == 0:
            assert side.article[first] != side.article[second]
            starts.append(pair.second)
        assert bool(pair.wanted & pair.answers) == (pair.label == 1)
        for text in (pair.first, pair.second):
            assert len(text.split()) <= 25 or text.count(".") == 1
        labels[pair.label] += 1
    assert 0.45 < labels[1] / labels.total() < 0.55
    firsts = {side.passages[p][slice(*side.spans(p)[0])] for p in range(len(side.passages))}
    assert not any(text in firsts for text in starts)  # what opens a passage never follows


def test_next_utterance_shows_the_turns_before_and_the_next_or_a_reply_of_another(conversations):
    side = conversations.conversations("train")
    task = NextUtterance(conversations, "train", 2, NextUtteranceSettings(context_turns=3))
    openings = {side.turns[start] for start in side.turns_start}
    labels = Counter()
    for item, pair in enumerate(one_pass(task) + one_pass(task, 1)):
        turn = side.replies[item % len(task)]
        start = side.turns_start[side.conversation_of(turn)]
        assert len(pair.first) == min(3, turn - start)
        assert list(pair.first) == [side.turns[n] for n in range(turn - len(pair.first), turn)]
        assert (pair.second == side.turns[turn]) == (pair.label == 1)
        assert pair.wanted == {text_key(side.turns[turn])}
        assert pair.answers == {text_key(pair.second)}
        if "turn" in pair.second:  # else there are others like it
            assert pair.second not in openings
        labels[pair.label] += 1
    assert 0.45 < labels[1] / labels.total() < 0.55


def test_three_classes_of_next_utterances(conversations):
    side = conversations.conversations("train")
    settings = NextUtteranceSettings(
        context_turns=2, unrelated_utterances=1 / 3, related_utterances=1 / 3
    )
    task = NextUtterance(conversations, "train", 2, settings)
    assert (task.num_answers, task.reading) == (3, "joined")
    labels = Counter()
    for item, pair in enumerate(pair for n in range(20) for pair in one_pass(task, n)):
        turn = side.replies[item % len(task)]
        own = side.conversation_of(turn)
        start, stop = side.turns_start[own], side.turns_stop[own]
        assert pair.first == side.turns_before(turn, 2)
        right = text_key(side.turns[turn])
        assert (text_key(pair.second) == right) == (pair.label == FOLLOWS)
        others = {side.turns[n] for n in range(start, stop) if not turn - 2 <= n <= turn}
        if pair.label == RELATED:
            assert pair.second in others - {*pair.first}
        if "turn" in pair.second and pair.label == UNRELATED:
            assert pair.second not in side.turns.between(start, stop)
        if stop - start > 5:
            labels[pair.label] += 1
    assert labels.keys() == {FOLLOWS, RELATED, UNRELATED}
    for count in labels.values():
        assert 0.28 < count / labels.total() < 0.39
    short = NextUtterance(conversations, settings=NextUtteranceSettings(related_utterances=0.2))
    assert short.settings.unrelated_utterances == 0.5
    only = NextUtteranceSettings(unrelated_utterances=0, related_utterances=0.5)
    assert NextUtterance.reading_of(only) == "joined"


def test_without_negatives_every_pair_is_right_and_has_no_label(articles, conversations):
    for task in (
        NextSentence(articles, settings=NextSentenceSettings(unrelated_sentences=0)),
        NextUtterance(conversations, settings=NextUtteranceSettings(unrelated_utterances=0)),
    ):
        for pair in one_pass(task):
            assert pair.label is None
            assert pair.wanted == pair.answers != frozenset()


def test_where_there_is_nothing_else_to_show_the_right_one_is_shown(tmp_path):
    talk = Conversation("t", (Turn("a", "Yes?"), Turn("b", "No."), Turn("a", "no. ")))
    pairs = one_pass(NextUtterance(tables_of([talk], tmp_path / "1"), seed=1))
    assert [pair.label for pair in pairs] == [1, 1]
    alone = article("A", [paragraph("One is here. Two is there. Three is away.")])
    task = NextSentence(tables_of([alone], tmp_path / "2"))
    assert all(pair.label == 1 for number in range(5) for pair in one_pass(task, number))


def test_mlm_has_every_passage_cut_between_sentences(articles):
    side = articles.articles("train")
    pairs = one_pass(Mlm(articles))
    assert len(pairs) == len(side.passages)
    for passage, pair in enumerate(pairs):
        assert f"{pair.first} {pair.second}".strip() == side.passages[passage]
        assert bool(pair.second) == (len(side.spans(passage)) > 1)


def test_mlm_has_every_reply_with_its_context(conversations):
    side = conversations.conversations("train")
    pairs = one_pass(Mlm(conversations, settings=MlmSettings(mlm_turns=2)))
    assert [pair.second for pair in pairs] == [side.turns[turn] for turn in side.replies]
    assert {len(pair.first) for pair in pairs} == {1, 2}


def test_korean_pairs(tmp_path):
    seoul = article(
        "서울",
        [paragraph("서울은 대한민국의 수도인 큰 도시이다. 한강이 도시를 동서로 흐른다.")],
        [paragraph("조선은 이 도시를 새 수도로 정하였다. 궁궐이 다섯 곳 남아 있다.")],
    )
    han = article("한강", [paragraph("이 강은 서울을 지나 바다로 흐른다.", "서울")], id="2")
    tables = tables_of([seoul, han], tmp_path)
    ict = Ict(tables, settings=IctSettings(keep_sentence=0))
    assert [pair.second for pair in one_pass(ict)][:2] == [
        "한강이 도시를 동서로 흐른다.",
        "서울은 대한민국의 수도인 큰 도시이다.",
    ]
    assert {pair.second_title for pair in one_pass(Wlp(tables))} == {"한강"}
    assert {pair.second[:2] for pair in one_pass(Bfs(tables))} == {"조선"}


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("wlp", "links between its articles"),
        ("bfs", "a first section and others"),
        ("ict", "at least two sentences"),
        ("cmae", "at least two passages or sentences"),
        ("next_sentence", "at least two sentences"),
    ],
)
def test_what_a_corpus_lacks_is_told(name, lacks, tmp_path):
    tables = tables_of([article("A", [paragraph("One sentence is here.")])], tmp_path)
    task = make_task(name, tables)
    assert len(task) == 0
    with pytest.raises(DataError, match=lacks) as told:
        task.require_pairs()
    assert "1 articles, 1 passages" in str(told.value)
    with pytest.raises(DataError, match="Hold out more"):
        make_task(name, tables, "held_out").require_pairs()
    with pytest.raises(IndexError):
        task[0]
    make_task("mlm", tables).require_pairs()


def test_a_task_of_another_kind_or_name_is_refused(articles, conversations):
    with pytest.raises(UsageError, match="needs a corpus of conversations"):
        make_task("next_utterance", articles)
    with pytest.raises(UsageError, match="needs a corpus of articles"):
        make_task("ict", conversations)
    with pytest.raises(UsageError, match="'ict'"):
        make_task("itc", articles)
    settings = TaskSettings(wlp=WlpSettings(any_passage=True), ict=IctSettings(keep_sentence=1.0))
    assert make_task("ict", articles, settings=settings).settings.keep_sentence == 1.0
    assert make_task("wlp", articles, settings=settings).settings.any_passage
    assert make_task("bfs", articles, settings=settings).name == "bfs"


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (IctSettings, {"keep_sentence": 1.1}),
        (NextSentenceSettings, {"unrelated_sentences": 1.0}),
        (NextSentenceSettings, {"segment_words": 0}),
        (NextUtteranceSettings, {"context_turns": 0}),
        (NextUtteranceSettings, {"unrelated_utterances": -0.1}),
        (NextUtteranceSettings, {"related_utterances": 0.5}),
        (NextUtteranceSettings, {"related_utterances": -0.5}),
        (CmaeSettings, {"cmae_turns": 0}),
        (MlmSettings, {"mlm_turns": 0}),
    ],
)
def test_settings_out_of_range_are_refused(kind, values):
    with pytest.raises(UsageError, match=next(iter(values))):
        kind(**values)


def test_cmae_has_every_reply_with_its_context(conversations):
    side = conversations.conversations("train")
    pairs = one_pass(Cmae(conversations, settings=CmaeSettings(cmae_turns=2)))
    assert [pair.second for pair in pairs] == [side.turns[turn] for turn in side.replies]
    for pair, turn in zip(pairs, side.replies, strict=True):
        assert pair.first == side.turns_before(turn, 2)
        assert (pair.reading, pair.label) == ("decoded", None)


def test_cmae_has_every_passage_with_one_beside_it(articles):
    side = articles.articles("train")
    task = Cmae(articles, "train", 1)
    numbers = {side.passages[passage]: passage for passage in range(len(side.passages))}
    steps, parts = Counter(), 0
    for number in range(3):
        for passage, pair in enumerate(one_pass(task, number)):
            if len(side.passages_of(side.article[passage])) > 1:
                assert pair.first == side.passages[passage]
                other = numbers[pair.second]
                assert side.article[other] == side.article[passage]
                steps[other - passage] += 1
            else:
                assert f"{pair.first} {pair.second}".strip() == side.passages[passage]
                parts += 1
    assert steps.keys() == {-1, 1}
    assert 0.4 < steps[1] / steps.total() < 0.6
    assert parts
