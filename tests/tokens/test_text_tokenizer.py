import json
import shutil

import pytest

from polyrank.errors import ModelError
from polyrank.models.backbone import load_tokenizer
from polyrank.tokens.tokenizer import TextTokenizer, cut
from tiny_encoders import FAMILIES, LONG, TEXTS, tokenizer_of


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture
def texts(family):
    return TextTokenizer(tokenizer_of(family))


@pytest.fixture
def bert_texts():
    return TextTokenizer(tokenizer_of("bert"))


def test_a_text_has_the_ids_that_transformers_gives_it(family, texts):
    expected = tokenizer_of(family)(TEXTS)["input_ids"]
    assert texts.candidates(TEXTS, 1000) == expected
    assert texts.contexts(TEXTS, 1000) == expected


def test_a_pair_has_the_ids_and_segments_that_transformers_gives_it(family, texts):
    context, candidate = "the wifi driver is new", "print it!"
    expected = tokenizer_of(family)(context, candidate, return_token_type_ids=True)
    ids, segments = texts.join(*texts.encode([context, candidate]))
    assert ids == expected["input_ids"]
    if family in ("bert", "electra"):
        assert segments == expected["token_type_ids"]
        assert set(segments) == {0, 1}
    else:
        assert set(segments) == {0}
    assert texts.pair_overhead == len(texts.join([], [])[0])


def test_an_empty_text_has_the_special_tokens_alone(texts):
    single = texts.single
    assert texts.candidates([""], 8) == [single.prefix + single.suffix]
    assert texts.contexts([[]], 8) == [single.prefix + single.suffix]


def test_a_candidate_loses_its_end(texts):
    [whole] = texts.candidates([LONG], 1000)
    [cut] = texts.candidates([LONG], 20)
    assert len(cut) == 20
    assert cut == whole[:19] + whole[-1:]


def test_a_single_text_loses_its_end_as_a_context_too(texts):
    assert texts.contexts([LONG, [LONG]], 20) == texts.candidates([LONG, LONG], 20)


def test_a_dialogue_loses_its_beginning(texts):
    dialogue = ["hello", LONG]
    [whole] = texts.contexts([dialogue], 1000)
    [newest] = texts.contexts([dialogue], 20)
    assert len(newest) == 20
    assert newest == whole[:1] + whole[-19:]


@pytest.mark.parametrize("context", [LONG, ["hello", LONG]], ids=["text", "dialogue"])
def test_a_named_side_holds_for_every_context(texts, context):
    [whole] = texts.contexts([context], 1000)
    assert texts.contexts([context], 20, "left") == [whole[:1] + whole[-19:]]
    assert texts.contexts([context], 20, "right") == [whole[:19] + whole[-1:]]
    assert texts.candidates([context], 20, "left") == [whole[:1] + whole[-19:]]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_the_shortest_lengths_keep_the_special_tokens(bert_texts, length):
    for encoded in (bert_texts.contexts([LONG], length), bert_texts.candidates([LONG], length)):
        assert len(encoded[0]) == max(length, 2)


def test_turns_are_joined_by_the_separator(family, texts):
    tokenizer = tokenizer_of(family)
    [first, second] = texts.encode(["hello", "how do i boot"])
    separator = [tokenizer.sep_token_id]
    assert texts.encode_turns([["hello", "how do i boot"]]) == [first + separator + second]


def test_one_turn_is_a_text_and_tuples_are_lists(bert_texts):
    assert bert_texts.encode_turns([["hello"]]) == bert_texts.encode_turns(["hello"])
    assert bert_texts.encode_turns([("a", "b")]) == bert_texts.encode_turns([["a", "b"]])


def test_of_many_turns_the_newest_survive(bert_texts):
    turns = ["first turn", LONG, "last turn"]
    [cut] = bert_texts.contexts([turns], 6)
    [last] = bert_texts.encode(["last turn"])
    assert cut[-len(last) - 1 : -1] == last


def test_contexts_of_different_numbers_of_turns_stay_apart(bert_texts):
    contexts = ["hello", ["a", "b", "c"], [], ["no"]]
    together = bert_texts.encode_turns(contexts)
    assert together == [bert_texts.encode_turns([context])[0] for context in contexts]


def test_a_repeated_text_is_tokenised_once(bert_texts, monkeypatch):
    seen = []
    backend = bert_texts.pretrained.backend_tokenizer

    class Counting:
        def encode_batch_fast(self, unique, **options):
            seen.extend(unique)
            return backend.encode_batch_fast(unique, **options)

    monkeypatch.setattr(
        type(bert_texts.pretrained), "backend_tokenizer", property(lambda _: Counting())
    )
    ids = bert_texts.encode(["yes", "no", "yes", "yes"])
    assert seen == ["yes", "no"]
    assert ids[0] == ids[2] == ids[3] != ids[1]


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_truncation_and_padding_of_the_file_are_switched_off(family, encoder_folder, tmp_path):
    folder = shutil.copytree(encoder_folder(family), tmp_path / "baked")
    expected = TextTokenizer(load_tokenizer(folder)).candidates([LONG, "yes", ""], 1000)
    described = json.loads((folder / "tokenizer.json").read_text())
    described["truncation"] = {
        "direction": "Right",
        "max_length": 8,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    described["padding"] = {
        "strategy": {"Fixed": 12},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "[PAD]",
    }
    (folder / "tokenizer.json").write_text(json.dumps(described))
    texts = TextTokenizer(load_tokenizer(folder))
    assert texts.candidates([LONG, "yes", ""], 1000) == expected
    assert [len(ids) for ids in texts.candidates([LONG, "yes", ""], 1000)][1:] == [3, 2]


def test_a_tokeniser_that_cannot_be_followed_is_refused():
    class Reversing:
        is_fast = False
        pad_token_id = 0
        sep_token_id = 1
        eos_token_id = None

        def __call__(self, text, pair=None, add_special_tokens=True):
            return {"input_ids": [9] if add_special_tokens else [5]}

    with pytest.raises(ModelError, match="Reversing changes texts"):
        TextTokenizer(Reversing())


def test_a_tokeniser_in_python_does_what_the_fast_one_does(bert_texts):
    class Slow:
        is_fast = False

        def __getattr__(self, name):
            return getattr(bert_texts.pretrained, name)

        def __call__(self, *texts, **options):
            return bert_texts.pretrained(*texts, **options)

    slow = TextTokenizer(Slow())
    assert slow.candidates([*TEXTS, "yes"], 12) == bert_texts.candidates([*TEXTS, "yes"], 12)
    assert slow.encode([]) == []


def test_cutting_to_any_room():
    for room, left, right in [(0, [], []), (2, [2, 3], [1, 2]), (9, [1, 2, 3], [1, 2, 3])]:
        assert cut([1, 2, 3], room, "left") == left
        assert cut([1, 2, 3], room, "right") == right
