"""What every engine must do. A test module makes a class of it and says how its engine is built.

    class TestFlat(EngineContract):
        @pytest.fixture
        def build(self, tmp_path):
            return lambda model, candidates: engine over these candidates

Brute force, in Python, is the truth of every search.
"""

import json
import random

import numpy as np
import pytest
import torch

from hash_model import HashModel
from polyrank.errors import DataError, ModelError, UsageError
from polyrank.records import Candidate
from polyrank.retrieval.filters import evaluate, holds, parse_filter

CONTEXTS = ["what is it", "another", "third one"]
FILTERS = [
    'lang == "en"',
    'lang != "en"',
    'not lang == "en"',
    "year >= 2015 and year < 2020",
    "not (year >= 2015)",
    "weight > 0.5 or flag == true",
    "flag != true and not flag == false",
    'lang in ["de", "fr"] and not year in [2010, 2011, 2012]',
    'lang not in ["de"]',
    "not (lang == 'en' or (year > 2012 and not flag == true))",
    "weight <= 1",
    'lang == "\\" or true or \\""',
]


def metadata(place):
    """Metadata of every kind, each field absent now and then."""
    everything = {
        "lang": ["en", "de", "fr", 'quo"te\\', "zh\n中"][place % 5],
        "year": 2010 + place % 13,
        "weight": [0.25, 1, 2.5, -3.5][place % 4],
        "flag": place % 2 == 0,
    }
    absent = [name for i, name in enumerate(everything) if place % (i + 3) == 0]
    return {name: value for name, value in everything.items() if name not in absent}


def some(count, start=0):
    """Candidates with metadata; some share a text, so that they tie."""
    return [
        Candidate(f"id{i}", f"text {i - i % 3 if i % 7 == 0 else i}", metadata(i))
        for i in range(start, start + count)
    ]


def matches(filter, metadata):
    """Whether one candidate passes a filter."""

    def leaf(condition):
        value = metadata.get(condition.field)
        return np.array([value is not None and holds(condition, value)])

    return bool(evaluate(filter, leaf)[0])


def truth(model, candidates, contexts, top_k):
    """All scores at once, sorted in Python: the ids and scores of each context (B, m, d)."""
    if not candidates:
        return [[] for _ in contexts]
    texts = [candidate.text for candidate in candidates]
    vectors = model.encode_candidates(texts)
    filling = torch.zeros(-len(texts) % 64, vectors.shape[1])
    scores = model.score_all(contexts, torch.cat([vectors, filling]))[:, : len(texts)].tolist()
    ids = [candidate.id for candidate in candidates]
    return [sorted(zip(row, ids, strict=True), reverse=True)[:top_k] for row in scores]


def require_equal(found, expected):
    """Ids in order, equal up to scores that rounding alone tells apart."""
    for each, right in zip(found, expected, strict=True):
        scores = [hit.score for hit in each.hits]
        np.testing.assert_allclose(scores, [score for score, _ in right], rtol=1e-5, atol=1e-5)
        assert [hit.id for hit in each.hits] == [identifier for _, identifier in right]
        assert each.report.certified


def contents(engine):
    return {candidate.id: (candidate.text, dict(candidate.metadata)) for candidate in engine}


def expected_contents(candidates):
    return {candidate.id: (candidate.text, dict(candidate.metadata)) for candidate in candidates}


class EngineContract:
    """Subclass it, name the class Test…, and give it the fixture `build`."""

    @pytest.fixture
    def build(self):
        raise NotImplementedError

    @pytest.fixture(params=[1, 4])
    def model(self, request):
        return HashModel(request.param)

    def search(self, engine, model, top_k, filter=None, *, contexts=None, exact=True):
        encoded = model.encode_for_scoring(contexts or CONTEXTS)
        parsed = None if filter is None else parse_filter(filter)
        return engine.search(encoded, top_k, exact=exact, filter=parsed)

    def test_everything_built_is_there(self, build):
        model = HashModel()
        candidates = some(150)
        engine = build(model, candidates)
        assert len(engine) == 150
        assert contents(engine) == expected_contents(candidates)
        assert engine.get("id7") == candidates[7]
        assert engine.get("id150") is None
        assert engine.get('"') is None
        assert engine.get("\ud800") is None
        engine.verify()

    def test_only_a_folder_has_a_manifest_and_bytes(self, build):
        engine = build(HashModel(), some(20))
        if engine.manifest is None:
            assert engine.num_bytes is None
        else:
            assert engine.manifest.count == len(engine)
            assert engine.num_bytes == sum(file.bytes for file in engine.manifest.files.values())

    def test_ids_and_texts_of_every_kind(self, build):
        model = HashModel()
        texts = [
            "",
            " ",
            '"',
            "'",
            "\\",
            'a" or id != "',
            "new\nline\r\t",
            "中文 😀",
            "\x00\x07",
            "%_*",
        ]
        candidates = [Candidate(text or "empty", text) for text in texts]
        engine = build(model, candidates)
        assert contents(engine) == expected_contents(candidates)
        for candidate in candidates:
            assert engine.get(candidate.id) == candidate
        require_equal(
            self.search(engine, model, 20), truth(model, candidates, self.encoded(model), 20)
        )
        assert engine.delete(['a" or id != "', "\\"]) == 2
        assert len(engine) == len(texts) - 2

    def encoded(self, model):
        return model.encode_for_scoring(CONTEXTS)

    @pytest.mark.parametrize("top_k", [1, 10, 299, 300, 1000])
    def test_exact_search_equals_brute_force(self, build, model, top_k):
        candidates = some(300)
        random.Random(1).shuffle(candidates)
        engine = build(model, candidates)
        found = self.search(engine, model, top_k)
        require_equal(found, truth(model, candidates, self.encoded(model), top_k))
        assert all(each.report.num_candidates == 300 for each in found)
        assert all(0 < each.report.num_scored <= 300 for each in found)
        by_id = {candidate.id: candidate for candidate in candidates}
        assert all(hit.text == by_id[hit.id].text for each in found for hit in each.hits)

    def test_ties_go_to_the_larger_id(self, build, model):
        candidates = [Candidate(str(i), "the same") for i in range(150)]
        engine = build(model, candidates)
        ranked = sorted((candidate.id for candidate in candidates), reverse=True)
        for top_k in (1, 7, 150):
            for each in self.search(engine, model, top_k):
                assert [hit.id for hit in each.hits] == ranked[:top_k]
                assert len({hit.score for hit in each.hits}) == 1

    def test_contexts_with_vectors_of_zeros(self, build):
        model = HashModel(4)
        candidates = some(200)
        engine = build(model, candidates)
        encoded = self.encoded(model)
        encoded[0, 1:] = 0
        encoded[1, 0] = 0
        found = engine.search(encoded, 9, exact=True, filter=None)
        require_equal(found, truth(model, candidates, encoded, 9))

    def test_one_context_alone_and_none(self, build, model):
        candidates = some(100)
        engine = build(model, candidates)
        encoded = self.encoded(model)
        together = engine.search(encoded, 5, exact=True, filter=None)
        for place, each in enumerate(together):
            alone = engine.search(encoded[place : place + 1], 5, exact=True, filter=None)
            assert [hit.id for hit in alone[0].hits] == [hit.id for hit in each.hits]
        assert engine.search(encoded[:0], 5, exact=True, filter=None) == []

    @pytest.mark.parametrize("filter", FILTERS)
    def test_filtered_search_equals_brute_force_over_the_filtered(self, build, filter):
        model = HashModel(4)
        candidates = some(120)
        engine = build(model, candidates)
        passing = [c for c in candidates if matches(parse_filter(filter), c.metadata)]
        found = self.search(engine, model, 11, filter)
        require_equal(found, truth(model, passing, self.encoded(model), 11))
        assert all(each.report.num_candidates == len(passing) for each in found)

    @pytest.mark.parametrize("exact", [True, False])
    def test_fewer_hits_only_where_fewer_pass(self, build, model, exact):
        candidates = some(60)
        engine = build(model, candidates)
        filter = "year == 2012"
        passing = {c.id for c in candidates if matches(parse_filter(filter), c.metadata)}
        assert 0 < len(passing) < 10
        for each in self.search(engine, model, 50, filter, exact=exact):
            assert {hit.id for hit in each.hits} == passing

    def test_approximate_search_finds_the_best_and_scores_exactly(self, build, model):
        candidates = some(400)
        engine = build(model, candidates)
        scores = {
            identifier: score
            for score, identifier in truth(model, candidates, self.encoded(model), 400)[0]
        }
        found = self.search(engine, model, 10, exact=False)
        for hit in found[0].hits:
            assert hit.score == pytest.approx(scores[hit.id], rel=1e-5, abs=1e-5)
        right = truth(model, candidates, self.encoded(model), 10)
        shared = [
            len({hit.id for hit in each.hits} & {identifier for _, identifier in row})
            for each, row in zip(found, right, strict=True)
        ]
        assert sum(shared) >= 24
        for each in found:
            ranked = [(hit.score, hit.id) for hit in each.hits]
            assert ranked == sorted(ranked, reverse=True)

    def test_changes_are_seen_by_the_next_search(self, build, model):
        candidates = some(150)
        engine = build(model, candidates)
        fresh = some(40, start=150)
        assert engine.add(fresh, model.encode_candidates, replace=False) == 40
        changed = [Candidate(f"id{i}", f"other text {i}", {"year": 1900 + i}) for i in range(20)]
        newer = [*changed, Candidate("new", "new text", {"extra": "yes"})]
        assert engine.add(newer, model.encode_candidates, replace=True) == 21
        assert engine.delete([f"id{i}" for i in range(100, 130)]) == 30
        now = {candidate.id: candidate for candidate in [*candidates, *fresh, *newer]}
        for i in range(100, 130):
            del now[f"id{i}"]
        now = list(now.values())
        for _ in range(2):
            assert len(engine) == len(now)
            assert contents(engine) == expected_contents(now)
            right = truth(model, now, self.encoded(model), 12)
            require_equal(self.search(engine, model, 12), right)
            require_equal(
                self.search(engine, model, 50, 'extra == "yes" or year < 1905'),
                truth(
                    model,
                    [c for c in now if c.id in {"new", "id0", "id1", "id2", "id3", "id4"}],
                    self.encoded(model),
                    50,
                ),
            )
            engine.verify()
            engine.compact()

    def test_deleted_candidates_can_be_added_again(self, build):
        model = HashModel()
        engine = build(model, some(30))
        engine.delete(["id3", "id4"])
        assert engine.get("id3") is None
        assert engine.add([Candidate("id3", "back")], model.encode_candidates, replace=False) == 1
        assert engine.get("id3") == Candidate("id3", "back")
        assert len(engine) == 29

    @pytest.mark.parametrize("replace", [True, False])
    def test_an_id_given_twice_adds_nothing(self, build, replace):
        model = HashModel()
        candidates = some(20)
        engine = build(model, candidates)
        twice = [*(Candidate(f"n{i}", "x") for i in range(5)), Candidate("n2", "again")]
        if replace:
            twice.insert(0, Candidate("id1", "changed"))
        with pytest.raises(DataError, match=r"'n2'.*twice"):
            engine.add(twice, model.encode_candidates, replace=replace)
        at_once = [Candidate("n", "x"), Candidate("n", "x")]
        with pytest.raises(DataError, match=r"'n'.*twice"):
            engine.add(at_once, model.encode_candidates, replace=replace)
        assert contents(engine) == expected_contents(candidates)

    def test_an_id_that_is_there_adds_nothing_without_replace(self, build):
        model = HashModel()
        candidates = some(20)
        engine = build(model, candidates)
        with pytest.raises(DataError, match="'id7'"):
            engine.add(
                [Candidate("n", "x"), Candidate("id7", "y")],
                model.encode_candidates,
                replace=False,
            )
        assert contents(engine) == expected_contents(candidates)

    @pytest.mark.parametrize("replace", [True, False])
    def test_candidates_that_fail_midway_add_nothing(self, build, replace):
        model = HashModel()
        candidates = some(20)
        engine = build(model, candidates)

        def failing():
            if replace:
                yield Candidate("id1", "changed", {"lang": "xx"})
            yield from some(5000, start=1000)
            raise DataError("line 5001 is bad.", "Mend it.")

        with pytest.raises(DataError, match="line 5001"):
            engine.add(failing(), model.encode_candidates, replace=replace)
        assert contents(engine) == expected_contents(candidates)
        engine.verify()

    def test_an_unknown_id_deletes_nothing(self, build):
        engine = build(HashModel(), some(20))
        with pytest.raises(DataError, match="'nope'"):
            engine.delete(["id1", "nope"])
        assert len(engine) == 20
        assert engine.delete([]) == 0

    def test_a_filter_on_an_unknown_field_or_with_another_kind_is_refused(self, build):
        model = HashModel()
        engine = build(model, some(20))
        with pytest.raises(UsageError, match=r"no field 'lnag'.*'lang'"):
            self.search(engine, model, 3, 'lnag == "en"')
        with pytest.raises(UsageError, match="year"):
            self.search(engine, model, 3, 'year == "2020"')

    def test_vectors_that_are_not_numbers_name_the_candidate(self, build):
        model = HashModel()
        candidates = some(20)
        engine = build(model, candidates)

        def encode(texts):
            vectors = model.encode_candidates(texts)
            vectors[1, 3] = torch.nan
            return vectors

        with pytest.raises(ModelError, match="'bad'"):
            engine.add([Candidate("good", "a"), Candidate("bad", "b")], encode, replace=False)
        assert contents(engine) == expected_contents(candidates)

    def test_contexts_that_are_not_numbers_are_refused(self, build):
        engine = build(HashModel(), some(20))
        with pytest.raises(ModelError, match="not numbers"):
            engine.search(torch.full((2, 1, 8), torch.nan), 3, exact=True, filter=None)

    def test_metadata_are_read_as_they_were_given(self, build):
        values = {"a": "1", "b": 1, "c": 1.5, "d": True, "text": "shadow", "id": "x", "vector": 2}
        engine = build(HashModel(), [Candidate("one", "t", values), Candidate("two", "u")])
        read = dict(engine.get("one").metadata)
        assert json.dumps(read, sort_keys=True) == json.dumps(values, sort_keys=True)
        assert dict(engine.get("two").metadata) == {}

    def test_hits_bring_their_metadata_if_asked(self, build, model):
        engine = build(model, some(60))
        encoded = model.encode_for_scoring(CONTEXTS)
        for found in engine.search(encoded, 9, exact=True, filter=None, metadata=True):
            known = [engine.get(hit.id).metadata for hit in found.hits]
            assert [dict(each) for each in found.metadata] == list(map(dict, known))
            assert len(known) == 9
        (found,) = engine.search(encoded[:1], 9, exact=True, filter=None)
        assert found.metadata == ()

    def test_ids_that_are_there(self, build):
        engine = build(HashModel(), some(20))
        asked = ["id3", "id19", "id20", "", "\ud800", "x" * 70_000, "id3"]
        assert engine.present(asked) == {"id3", "id19"}
        engine.delete(["id3"])
        assert engine.present(asked) == {"id19"}
