import pickle
from collections import Counter

import pytest
from tiny_corpora import article, paragraph, random_articles, random_conversations, tables_of

from polyrank.errors import DataError, UsageError
from polyrank.pretraining.mixture import ROUND, Mixture, quotas
from polyrank.pretraining.pairs import TEXT, link_key, page_key, rest_key
from polyrank.pretraining.registry import TaskSettings, make_task
from polyrank.pretraining.tasks.bfs import BfsSettings


@pytest.fixture(scope="module")
def articles(tmp_path_factory):
    return tables_of(random_articles(60), tmp_path_factory.mktemp("articles"), passage_words=40)


@pytest.fixture(scope="module")
def conversations(tmp_path_factory):
    return tables_of(random_conversations(60), tmp_path_factory.mktemp("conversations"))


@pytest.fixture
def tasks(articles):
    return [make_task(name, articles, seed=5) for name in ("ict", "bfs", "wlp")]


def shares(mixture, count):
    counts = Counter(mixture[number].task for number in range(count))
    return [counts[task.name] / count for task in mixture.tasks]


def test_tasks_have_equal_shares(tasks):
    mixture = Mixture(tasks, seed=1)
    assert mixture.shares == pytest.approx([1 / 3] * 3, abs=1e-4)
    assert shares(mixture, ROUND) == mixture.shares
    assert shares(mixture, 600) == pytest.approx([1 / 3] * 3, abs=0.08)
    assert len(mixture) == len(list(mixture)) == sum(map(len, tasks))


def test_shares_follow_the_weights(tasks):
    mixture = Mixture(tasks, [1, 2, 5], seed=1)
    assert shares(mixture, ROUND) == mixture.shares == [0.125, 0.25, 0.625]
    tiny = Mixture(tasks, [1e-9, 1, 1], seed=1)
    assert tiny.shares[0] == 1 / ROUND
    assert sum(tiny.shares) == pytest.approx(1)


@pytest.mark.parametrize("mix_tasks", [True, False])
def test_a_task_is_taken_pass_after_pass_each_item_once(tasks, mix_tasks):
    mixture = Mixture(tasks, seed=2, mix_tasks=mix_tasks, batch_size=16)
    items = {number: [] for number in range(3)}
    for index in range(2 * ROUND + 100):
        number, item = mixture.locate(index)
        items[number].append(item)
        if index < 50:
            assert mixture[index].second == tasks[number][item].second
    for number, task in enumerate(tasks):
        size = len(task)
        passes = len(items[number]) // size
        assert passes > 2
        for one in range(passes):
            taken = items[number][one * size : (one + 1) * size]
            assert sorted(taken) == list(range(one * size, (one + 1) * size))
            assert taken != sorted(taken)


def test_an_item_is_the_same_alone_and_in_sequence(tasks):
    pairs = list(map(Mixture(tasks, seed=3).__getitem__, range(300)))
    again = pickle.loads(pickle.dumps(Mixture(tasks, seed=3)))
    for index in (299, 0, 150):
        assert again[index] == pairs[index]
    assert list(map(Mixture(tasks, seed=4).__getitem__, range(300))) != pairs
    assert Mixture(tasks, seed=3)[10**9].task in {"ict", "bfs", "wlp"}
    with pytest.raises(IndexError):
        again[-1]


def test_batches_can_be_of_one_task_each(tasks):
    mixture = Mixture(tasks, seed=6, mix_tasks=False, batch_size=8)
    kinds = Counter()
    for batch in range(90):
        names = {mixture[8 * batch + place].task for place in range(8)}
        assert len(names) == 1
        kinds[names.pop()] += 1
    assert all(15 < kinds[task.name] < 45 for task in tasks)
    mixed = Mixture(tasks, seed=6, batch_size=8)
    assert all(len({mixed[8 * b + place].task for place in range(8)}) > 1 for b in range(20))


def test_frequencies_are_those_of_the_mixture(tasks):
    mixture = Mixture(tasks, [2, 1, 1], seed=7)
    pairs = [mixture[index] for index in range(4 * ROUND)]
    counts = Counter(pair.passage for pair in pairs)
    for pair in pairs[:500]:
        expected = pair.frequency * len(pairs) / len(mixture)
        assert counts[pair.passage] == pytest.approx(expected, abs=5 * expected**0.5 + 2)
    single = Mixture(tasks, seed=7, mix_tasks=False, batch_size=4)
    for index in range(40):
        number, item = single.locate(index)
        assert single[index].frequency == tasks[number][item].frequency


def test_a_lead_sentence_wants_what_it_would_want_in_the_other_task(tmp_path):
    tables = tables_of(
        [
            article("Seoul", [paragraph("Seoul is a large old city.")], [paragraph("A river.")]),
            article("Han", [paragraph("The Han passes by Seoul slowly.", "Seoul")], id="2"),
        ],
        tmp_path,
    )
    bfs, wlp = make_task("bfs", tables), make_task("wlp", tables)
    both = Mixture([bfs, wlp], seed=1)
    assert all(both[index].wanted == {rest_key(0), link_key(0)} for index in range(20))
    assert Mixture([bfs], seed=1)[0].wanted == {rest_key(0)}
    settings = TaskSettings(bfs=BfsSettings(any_section=True))
    anywhere = Mixture([make_task("bfs", tables, settings=settings), wlp], seed=1)
    assert all(anywhere[index].wanted == {page_key(0), link_key(0)} for index in range(20))


def test_keys_of_two_corpora_do_not_meet(articles, conversations, tmp_path):
    other = tables_of(random_articles(60), tmp_path, passage_words=40)
    tasks = [make_task("ict", articles), make_task("ict", other)]
    tasks.append(make_task("next_utterance", conversations))
    mixture = Mixture(tasks, seed=1)
    keys = {0: set(), 1: set(), 2: set()}
    for index in range(900):
        pair = mixture[index]
        keys[mixture.locate(index)[0]] |= pair.wanted | pair.answers
        assert all(0 <= key < 2**63 for key in pair.wanted | pair.answers)
    assert not keys[0] & keys[1]
    assert all(key & TEXT for key in keys[2])


def test_one_task_is_a_mixture_too(articles):
    task = make_task("mlm", articles)
    mixture = Mixture([task], seed=1)
    assert sorted(mixture.locate(index)[1] for index in range(len(task))) == list(range(len(task)))


def test_what_cannot_be_mixed_is_told(tasks, tmp_path):
    with pytest.raises(UsageError, match="3 tasks"):
        Mixture(tasks, [1, 2])
    with pytest.raises(UsageError, match="above 0"):
        Mixture(tasks, [1, 2, 0])
    with pytest.raises(UsageError, match="tasks must be at least one"):
        Mixture([])
    with pytest.raises(UsageError, match="batch_size"):
        Mixture(tasks, batch_size=0)
    lonely = tables_of([article("A", [paragraph("One sentence is here.")])], tmp_path)
    with pytest.raises(DataError, match="wlp"):
        Mixture([make_task("wlp", lonely)])


@pytest.mark.parametrize("weights", [[1, 1, 1], [1, 1e-12, 1e-12], [3, 5, 7], [1e9, 1, 1]])
def test_quotas_add_up(weights, tasks):
    found = quotas(weights, tasks)
    assert sum(found) == ROUND
    assert min(found) >= 1
