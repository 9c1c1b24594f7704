"""The Korean quick start of docs/korean.md with a tiny encoder of KoELECTRA's architecture."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import ElectraConfig, ElectraForPreTraining, ElectraTokenizer

from polyrank.cli.flags import flags_of
from polyrank.cli.main import commands, run
from polyrank.models.checkpoint import load_model

DOCS = Path(__file__).parents[2] / "docs" / "korean.md"
SUBJECTS = ("아이가", "고양이가", "어머니는", "친구와 나는", "운동선수가")
DOINGS = {
    "공원에서 달리고 있다": "밖에서 뛴다",
    "부엌에서 밥을 먹는다": "식사를 한다",
    "창가에서 잠을 잔다": "쉬고 있다",
    "바닷가에서 노래를 부른다": "소리를 낸다",
}
CLASSES = ("entailment", "neutral", "contradiction")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def nli():
    """KorNLI's columns: a sentence, one that follows, may be, or cannot be."""
    rows = []
    for subject in SUBJECTS:
        for doing, follows in DOINGS.items():
            others = (
                f"{subject} {follows}",
                f"{subject} 기분이 좋다",
                f"{subject} 가만히 있지 않다",
            )
            rows += [
                {"sentence1": f"{subject} {doing}.", "sentence2": f"{other}.", "gold_label": label}
                for other, label in zip(others, CLASSES, strict=True)
            ]
    return rows


def sts():
    """KorSTS's columns: scores from 0 to 5."""
    rows = []
    for place, subject in enumerate(SUBJECTS):
        for doing, follows in DOINGS.items():
            other = SUBJECTS[(place + 1) % len(SUBJECTS)]
            for second, score in ((follows, 4.2), (doing, 5.0)):
                rows.append((f"{subject} {doing}.", f"{subject} {second}.", score))
            rows.append((f"{subject} {doing}.", f"{other} 비를 맞았다.", 0.4))
    names = ("sentence1", "sentence2", "score")
    return [dict(zip(names, row, strict=True)) for row in rows]


def chat():
    """Questions and answers."""
    things = ("영화", "커피", "여행", "산책", "음악", "요리", "겨울", "바다", "책", "그림")
    return [
        {
            "question": f"{thing} 좋아해? {place}",
            "answer": f"네, {thing}라면 언제든 좋아요. {place}",
        }
        for place in range(3)
        for thing in things
    ]


@pytest.fixture(scope="module")
def electra(tmp_path_factory):
    """ELECTRA's discriminator with an embedding projection and a cased Korean WordPiece."""
    rows = [*nli(), *sts(), *chat()]
    texts = [value for row in rows for value in row.values() if isinstance(value, str)]
    pieces = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    pieces.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=SPECIAL, show_progress=False)
    pieces.train_from_iterator(texts, trainer)
    tokenizer = ElectraTokenizer(vocab=pieces.get_vocab(), do_lower_case=False, strip_accents=False)
    config = ElectraConfig(
        vocab_size=len(tokenizer),
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=128,
    )
    folder = tmp_path_factory.mktemp("koelectra")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ElectraForPreTraining(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def polyrank(capsys):
    """What a command gives with --json on a CPU."""

    def call(*arguments):
        device = () if arguments[0] == "search" else ("--device", "cpu")
        code = run([*map(str, arguments), *device, "--json"], commands())
        printed = capsys.readouterr()
        assert code == 0, printed.err
        return json.loads(printed.out)

    return call


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def test_from_nli_to_sts_to_a_search(electra, tmp_path, polyrank):
    nli_data = tmp_path / "nli.tsv"
    names = ("sentence1", "sentence2", "gold_label")
    lines = ["\t".join(names), *("\t".join(row[name] for name in names) for row in nli())]
    nli_data.write_text("\n".join(lines) + "\n", "utf-8")
    sts_data = write(tmp_path / "sts.jsonl", sts())

    few = ("--epochs", 6, "--learning-rate", 1e-3)
    train = ("train", "--recipe", "sbert-nli", "--arch", "bi", "--base", electra)
    polyrank(*train, "--train", nli_data, "--output", tmp_path / "nli", *few)
    figures = polyrank("evaluate", tmp_path / "nli", "--data", nli_data)
    assert figures["accuracy"] > 0.6  # a third is chance

    train = ("train", "--recipe", "sbert-sts", "--arch", "bi", "--base", tmp_path / "nli")
    polyrank(*train, "--train", sts_data, "--dev", sts_data, "--output", tmp_path / "sts", *few)
    figures = polyrank("evaluate", tmp_path / "sts", "--data", sts_data)
    assert figures["spearman"] > 0.6

    model = load_model(tmp_path / "sts", device="cpu")
    config = model.context_tower.encoder.config
    assert (config.embedding_size, config.hidden_size) == (16, 32)
    assert model.tokenizer.encode([SUBJECTS[0]])[0].count(1) == 0, "no unknown token"

    texts = [f"{subject} {doing}." for subject in SUBJECTS for doing in DOINGS]
    (tmp_path / "sentences.txt").write_text("\n".join(texts) + "\n", "utf-8")
    built = ("--candidates", tmp_path / "sentences.txt", "--output", tmp_path / "index")
    polyrank("index", "build", tmp_path / "sts", *built)
    found = polyrank("search", tmp_path / "index", texts[7], "--top-k", 3)
    assert texts[7] in json.dumps(found, ensure_ascii=False)


@pytest.mark.parametrize("arch", ["poly", "cross"])
def test_a_chatbot(arch, electra, tmp_path, polyrank):
    data = write(tmp_path / "chat.jsonl", chat())
    codes = ("--num-codes", 4) if arch == "poly" else ("--num-negatives", 3)
    train = ("train", "--arch", arch, *codes, "--base", electra, "--train", data)
    polyrank(*train, "--output", tmp_path / "chat", "--max-steps", 2, "--batch-size", 8)
    figures = polyrank("evaluate", tmp_path / "chat", "--data", data)
    assert 0 <= figures["mrr"] <= 1


def test_segments_tell_the_two_texts_of_a_cross_encoder_apart(electra):
    from polyrank.models.cross_encoder import CrossEncoder

    model = CrossEncoder.from_pretrained(electra, device="cpu")
    ids, segments = model.encode_pairs([SUBJECTS[0]], [SUBJECTS[1]])
    assert set(segments[0]) == {0, 1}
    assert len(segments[0]) == len(ids[0])


def test_pickled_weights_are_refused_with_the_way_to_convert_them(electra, tmp_path, capsys):
    """Some repositories hold pytorch_model.bin alone, which is pickle."""
    pickled = tmp_path / "pickled"
    shutil.copytree(electra, pickled)
    (pickled / "model.safetensors").unlink()
    (pickled / "pytorch_model.bin").write_bytes(b"")
    data = write(tmp_path / "chat.jsonl", chat())
    arguments = ["train", "--arch", "bi", "--base", pickled, "--train", data]
    assert run([*map(str, arguments), "--output", str(tmp_path / "out")], commands()) == 2
    assert "AutoModel.from_pretrained" in capsys.readouterr().err


def test_the_page_types_only_flags_that_there_are():
    flags = {flag.flag for command in commands() for flag in flags_of(command.options)}
    typed = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", DOCS.read_text(encoding="utf-8")))
    assert "--recipe" in typed
    assert typed <= flags
