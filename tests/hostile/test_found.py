"""What damaged files once did: a traceback, gigabytes of memory, a file outside the folder."""

import json

import pytest
from readers import READERS, folder_readers, write

from damage import DEPTH, DIGITS
from polyrank.errors import InputError

HUGE = "1" * DIGITS
NESTED = "[" * DEPTH


def changed(**values):
    """Puts values into an object of JSON; None removes one."""

    def change(data):
        found = {**json.loads(data), **values}
        return json.dumps({name: one for name, one in found.items() if one is not None})

    return change


def annotated(*annotations):
    """Gives the first question other annotations."""
    return lambda data: changed(annotations=list(annotations))(data.decode().partition("\n")[0])


def first_part(**values):
    """Changes the first part in the manifest of a corpus."""

    def change(data):
        found = json.loads(data)
        found["parts"][0].update(values)
        return json.dumps(found)

    return change


def one_word(data):
    """Leaves a single word in the vocabulary, and none for those that are unknown."""
    found = json.loads(data)
    found["model"]["vocab"] = [["a"]]
    return json.dumps(found)


def token_too_many(data):
    """Gives a special token a text of its own, so that another token stands for the old one."""
    found = json.loads(data)
    found["added_tokens"][0]["content"] = " "
    return json.dumps(found)


def with_id(number):
    """Gives a token an id that the encoder has no embedding for."""

    def change(data):
        found = json.loads(data)
        assert "file" in found["model"]["vocab"]
        found["model"]["vocab"]["file"] = number
        return json.dumps(found)

    return change


NQ = "natural-questions v1.0-simplified.jsonl", "v1.0-simplified.jsonl"
FILES = {
    "nested line": ("examples", "a.jsonl", '{"context": "a", "response": ' + NESTED),
    "digits": ("examples", "a.jsonl", f'{{"context": "a", "response": "b", "id": {HUGE}}}'),
    "nested item of an array": ("table faq.json", "faq.json", '[{"question": ' + NESTED),
    "nested array": ("table faq.json", "faq.json", NESTED),
    "nested array, closed": ("table faq.json", "faq.json", NESTED + "]" * DEPTH),
    "nested first line": ("corpus of articles", "a.jsonl", '{"title": ' + NESTED),
    "digits in a conversation": ("corpus of conversations", "a.jsonl", f'{{"turns": {HUGE}}}'),
    "class is a list": (
        "nli snli_dev.jsonl",
        "snli_dev.jsonl",
        '{"gold_label": ["neutral"], "sentence1": "a", "sentence2": "b"}',
    ),
    "endless class": (
        "nli snli_dev.jsonl",
        "snli_dev.jsonl",
        json.dumps({"gold_label": "a" * 5_000_000, "sentence1": "a", "sentence2": "b"}),
    ),
    "annotation is a number": (*NQ, annotated(1)),
    "short answers are a number": (*NQ, annotated({"long_answer": {}, "short_answers": 5})),
    "endless width": ("word vectors", "a.vec", f"5 {HUGE}\nfile 1 2 3\n"),
    "width of another script": ("word vectors", "a.vec", "5 ²\nfile 1 2 3\n"),
    "nested settings": ("settings", "train.yaml", "epochs: " + "[" * 60_000),
    "many settings": ("settings", "train.yaml", "epochs: 3\n" * 100_000),
    "line with a long number": ("parlai dialogue.txt", "dialogue.txt", f"{HUGE} hello\thi\n"),
    "long grade": ("beir", "qrels/test.tsv", lambda data: f"{data.decode()}q3\td1\t{HUGE}\n"),
    "setting of 400 digits": ("settings", "train.yaml", "learning_rate: " + "1" * 400),
}
FOLDERS = {
    "tokeniser": ("bi", "saved/backbone/tokenizer.json", changed(pre_tokenizer={"type": "a"})),
    "settings of a tokeniser": ("bi", "saved/backbone/tokenizer_config.json", "[[5]]"),
    "ids": ("bi", "saved/backbone/tokenizer.json", with_id(5_000)),
    "nested description": ("bi", "saved/backbone/config.json", '{"a": ' + NESTED),
    "kind is a list": ("bi", "saved/backbone/config.json", changed(model_type=["bert"])),
    "endless layers": ("bi", "saved/backbone/config.json", changed(num_hidden_layers=1 << 31)),
    "less than no heads": ("bi", "saved/backbone/config.json", changed(num_attention_heads=-1)),
    "width of a base elsewhere": (
        "adapters",
        "saved/backbone/config.json",
        changed(intermediate_size=1 << 40),
    ),
    "width of nothing": ("bi", "saved/backbone/config.json", changed(intermediate_size=0)),
    "dropout is NaN": (
        "cross",
        "saved/backbone/config.json",
        changed(hidden_dropout_prob=float("nan")),
    ),
    "no unknown word": ("bi", "saved/backbone/tokenizer.json", one_word),
    "endless layers of another": (
        "reranker",
        "0_Transformer/config.json",
        changed(num_hidden_layers=1 << 31),
    ),
    "endless labels": ("reranker", "2_Dense/config.json", changed(out_features=1 << 31)),
    "ids, read once": ("cross-interaction", "saved/backbone/tokenizer.json", with_id(5_000)),
    "endless id": ("static", "saved/backbone/tokenizer.json", with_id(1 << 31)),
    "endless words": ("static", "saved/backbone/config.json", changed(vocab_size=1 << 31)),
    "token too many": ("static", "saved/backbone/tokenizer.json", token_too_many),
    "endless id of another": ("model2vec", "saved/tokenizer.json", with_id(1 << 31)),
    "labels": ("labels", "saved", '{"context": '),
    "whose labels": ("labels", "saved.teacher.json", NESTED),
    "models are a number": ("info of a comparison", "saved/comparison.json", changed(models=5)),
    "record of training": (
        "info of a model",
        "saved/training.json",
        changed(provenance=["a"]),
    ),
    "size is a text": ("static", "saved/backbone/config.json", changed(vocab_size="a")),
    "length is a list": (
        "sentence-transformers",
        "saved/query_0_Transformer/sentence_bert_config.json",
        changed(max_seq_length=[7], query_length=[1]),
    ),
    "bytes are a text": ("corpus", "saved/corpus.json", first_part(bytes="5")),
    "part outside": ("corpus", "saved/corpus.json", first_part(file="../part-00000.parquet")),
    "part with a long name": ("corpus", "saved/corpus.json", first_part(file="a" * 10_000)),
    "part with NUL in its name": ("corpus", "saved/corpus.json", first_part(file="\0")),
    "endless rows": ("corpus", "saved/corpus.json", first_part(rows=1 << 31)),
    "checksum of half an emoji": ("tables", "saved/corpus.json", first_part(sha256="\ud800")),
    "endless count": ("corpus", "saved/corpus.json", changed(counts={"conversations": 2**64})),
    "no counts": ("tables", "tables.json", changed(counts=None)),
    "another kind": ("tables", "tables.json", changed(kind="books")),
}


@pytest.fixture(scope="module")
def folders(bert):
    return {reader.name: reader for reader in folder_readers(bert, ())}


@pytest.mark.parametrize("found", FILES)
def test_files(found, tmp_path):
    name, file, damage = FILES[found]
    refused({each.name: each for each in READERS}[name], file, damage, tmp_path)


@pytest.mark.parametrize("found", FOLDERS)
def test_folders(found, folders, tmp_path):
    name, file, damage = FOLDERS[found]
    (place,) = [each for each in folders[name].files if each.endswith(file)]
    refused(folders[name], place, damage, tmp_path)


def refused(reader, file, damage, folder):
    text = damage if isinstance(damage, str) else damage(reader.files[file])
    write(reader, folder, {file: text.encode()})
    with pytest.raises(InputError) as caught:
        reader.read(folder)
    assert len(str(caught.value)) < 1_000
