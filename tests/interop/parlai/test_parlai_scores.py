"""ParlAI's rankers give the token ids and scores here that they gave there."""

import json

import pytest
import torch
from parlai_cases import CHECKPOINTS, CPU, NAMES, copy_of, expected_of
from torch.nn import functional

import polyrank
from polyrank.cli.main import commands, run
from polyrank.errors import ModelError, UsageError
from polyrank.interop.parlai.importing import import_checkpoint
from polyrank.interop.parlai.options import AGENTS, KNOWN
from polyrank.models.bert import Bert
from polyrank.models.checkpoint import load_model
from tiny_encoders import scores_of


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Gives the folder of an imported checkpoint; each is imported once."""
    made = {}

    def import_once(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp("imported") / name
            import_checkpoint(CHECKPOINTS / name, made[name])
        return made[name]

    return import_once


def known_ids(model, ids, size):
    """Ids as ParlAI has them: pieces that its dictionary lacks are all "unknown" there."""
    backend = model.tokenizer.pretrained.backend_tokenizer
    unknown = backend.token_to_id(backend.model.unk_token or "")
    return [[one if one < size else unknown for one in row] for row in ids]


@pytest.mark.parametrize("trainable", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_ids_and_scores_are_parlais(name, trainable, imported):
    expected = expected_of(name)
    turns, candidates, size = (expected[k] for k in ("turns", "candidates", "dictionary_size"))
    model = load_model(imported(name), trainable=trainable, **CPU)
    assert model.architecture == name.replace("ranker", "bi").partition("-")[0]
    if model.architecture == "cross":
        ids, segments = model.encode_pairs([c for c in turns for _ in candidates], candidates * 5)
        pairs = [pair for row in expected["pairs"] for pair in row]
        assert known_ids(model, ids, size) == [pair[0] for pair in pairs]
        assert segments == [pair[1] for pair in pairs]
    else:
        assert known_ids(model, model.context_ids(turns), size) == expected["context_ids"]
        found = known_ids(model, model.candidate_ids(candidates), size)
        assert found == expected["candidate_ids"]
    scores, theirs = model.score(turns, candidates), torch.tensor(expected["scores"])
    assert theirs.std() > 1e-3
    assert (scores - theirs).abs().max() <= 1e-5
    torch.testing.assert_close(scores, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_padding_changes_no_score(name, imported):
    expected = expected_of(name)
    model = load_model(imported(name), **CPU)
    together = model.score(expected["turns"], expected["candidates"], batch_size=50)
    torch.testing.assert_close(together, torch.tensor(expected["scores"]), rtol=1e-4, atol=1e-5)


def test_every_kind_is_there():
    """The checkpoints cover every value that can be imported."""
    options = [json.loads((CHECKPOINTS / name / "model.opt").read_text()) for name in NAMES]
    for name, values in [*KNOWN.items(), ("model", AGENTS)]:
        assert {one[name] for one in options if name in one} == set(values), name
    for name in ("share_encoders", "learn_positional_embeddings", "embeddings_scale", "dict_lower"):
        assert {one[name] for one in options if name in one} == {True, False}, name


def test_the_model_file_stands_for_its_folder(tmp_path):
    folder = copy_of("poly-n-first", tmp_path)
    for file in folder.glob("model*"):
        file.rename(folder / file.name.replace("model", "best", 1))
    for end in ("", ".opt"):  # ParlAI's checkpoint during training, without a dictionary
        (folder / f"best.checkpoint{end}").write_bytes((folder / f"best{end}").read_bytes())
    names = ("", "best", "best.opt", "best.dict", "best.checkpoint")
    made = {import_checkpoint(folder / one, tmp_path / "model").fingerprint() for one in names}
    assert len(made) == 1


@pytest.mark.parametrize("name", ["poly-n-first", "cross-mean"])
def test_texts_are_cut_to_the_positions(name, tmp_path):
    folder = copy_of(name, tmp_path, truncate=-1, text_truncate=-1, label_truncate=-1)
    saved = torch.load(folder / "model", weights_only=True)
    for key, tensor in saved["model"].items():
        if key.endswith("position_embeddings.weight"):
            saved["model"][key] = tensor[:20].clone()
    torch.save(saved, folder / "model")
    import_checkpoint(folder, tmp_path / "model")
    model = load_model(tmp_path / "model", **CPU)
    lengths = model.config.max_context_length, model.config.max_candidate_length
    assert lengths == ((20, 20) if name == "poly-n-first" else (8, 8))
    long = "so many words " * 30
    assert model.score([long], [long]).isfinite().all()


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("zipped", [False, True])
def test_older_files_and_half_precision_are_read(tmp_path, half, zipped):
    folder = copy_of("poly-published", tmp_path)
    state = torch.load(folder / "model", weights_only=True)["model"]
    state = {name: tensor.half() if half else tensor for name, tensor in state.items()}
    saved = {"model": state, "optimizer": {"state": {}}, "number_training_updates": 3}
    torch.save(saved, folder / "model", _use_new_zipfile_serialization=zipped)
    assert import_checkpoint(folder, tmp_path / "model").path == tmp_path / "model"
    model = load_model(tmp_path / "model", **CPU)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    expected = expected_of("poly-published")
    scores = scores_of(model, expected["turns"], expected["candidates"])
    allowed = 1e-3 if half else 1e-5
    assert (scores - torch.tensor(expected["scores"])).abs().max() <= allowed


def test_special_tokens_within_a_text_are_words(imported):
    model = load_model(imported("poly-codes-sqrt"), **CPU)
    light = load_model(imported("poly-codes-sqrt"), trainable=False, **CPU)
    text = "__null__x no__start__ ."
    for one in (model, light):
        [ids] = one.tokenizer.encode([text])
        assert ids[:2] == [3, 3]  # as whole words, which are unknown
        assert len(ids) == 3


@pytest.mark.parametrize("name", ["poly-codes-sqrt", "ranker"])
def test_an_imported_model_can_be_searched_with(name, imported, tmp_path):
    expected = expected_of(name)
    model = load_model(imported(name), **CPU)
    ranked = model.rank(expected["turns"][0], expected["candidates"])
    order = sorted(range(7), key=lambda place: -expected["scores"][0][place])
    assert [hit.text for hit in ranked] == [expected["candidates"][place] for place in order]
    index = polyrank.Index.build(model, expected["candidates"], tmp_path / "index")
    found = index.search(expected["turns"][:1], top_k=3)[0]
    assert [hit.text for hit in found] == [hit.text for hit in ranked[:3]]


@pytest.mark.parametrize("name", ["bi-shared"])
def test_an_imported_model_can_be_trained_on(name, imported, tmp_path, capsys):
    file = tmp_path / "train.jsonl"
    rows = [{"context": turns, "response": turns[-1]} for turns in expected_of(name)["turns"]]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    output = tmp_path / "trained"
    words = ["train", "--arch", name.partition("-")[0], "--base", str(imported(name))]
    words += ["--train", str(file), "--output", str(output), "--max-steps", "3"]
    words += ["--device", "cpu", "--learning-rate", "0.01", "--batch-size", "4"]
    assert run(words, commands()) == 0, capsys.readouterr().err
    before = load_model(imported(name), **CPU)
    after = load_model(output, **CPU)
    assert after.config == before.config
    old = before.state_dict()
    moved = {name for name, one in after.state_dict().items() if not torch.equal(one, old[name])}
    towers = {name.partition(".encoder.")[0] for name in moved if ".encoder." in name}
    assert towers == {name for name in before.tower_names if getattr(before, name) is not None}


def test_gradients_reach_every_part_of_a_shared_encoders_layers(imported):
    model = load_model(imported("bi-shared"), **CPU)
    expected = expected_of("bi-shared")
    ids = model.candidate_ids(expected["candidates"][:1])
    batch = {"input_ids": torch.tensor(ids), "rows": torch.tensor([0])}
    vectors = model.finish_candidates(model.candidate_tower(batch), batch)
    functional.mse_loss(vectors, torch.zeros_like(vectors)).backward()
    assert isinstance(model.candidate_tower.encoder, Bert)
    for parameter in (*model.candidate_dense.parameters(), *model.candidate_tower.parameters()):
        assert parameter.grad.abs().max() > 0


def test_a_bert_can_be_exported_and_a_variant_says_why_not(imported, tmp_path):
    polyrank.export(imported("bi-separate"), tmp_path / "st", to="sentence-transformers")
    for name, settings in (("bi-words", {}), ("poly-sqrt", {"only_candidates": True})):
        with pytest.raises(UsageError, match=r"own kind polyrank-bert.*onnx"):
            polyrank.export(imported(name), tmp_path / "no", "sentence-transformers", **settings)
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("name", ["cross-first", "cross-max", "poly-sqrt"])
def test_cross_encoders_of_sentence_transformers_score_as_parlai_does(name, imported, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    made = polyrank.export(imported(name), tmp_path / "st", to="sentence-transformers")
    expected = expected_of(name)
    trusted = {"trust_remote_code": True} if "trust_remote_code" in made.load else {}
    theirs = sentence_transformers.CrossEncoder(str(tmp_path / "st"), device="cpu", **trusted)
    context, short = expected["turns"][1][0], ["no"]
    scores = theirs.predict([(context, text) for text in short], show_progress_bar=False)
    wanted = [expected["scores"][1][expected["candidates"].index(text)] for text in short]
    torch.testing.assert_close(torch.tensor(scores), torch.tensor(wanted), rtol=1e-4, atol=1e-5)


def test_a_checkpoint_that_is_not_imported_yet_is_recognised(capsys):
    folder = CHECKPOINTS / "ranker"
    for load in (load_model, polyrank.BiEncoder.from_pretrained):
        with pytest.raises(ModelError, match=r"checkpoint of ParlAI.*polyrank import"):
            load(folder)
    for path in (folder, folder / "model"):
        assert run(["info", str(path)], commands()) == 0
        said = capsys.readouterr().out
        assert f"polyrank import {path} --output MODEL" in " ".join(said.split())
    assert run(["info", str(folder / "model.dict"), "--json"], commands()) == 0
    assert json.loads(capsys.readouterr().out)["kind"] != "checkpoint"


def test_the_command_says_what_it_made(tmp_path, capsys):
    output = tmp_path / "model"
    words = ["import", str(CHECKPOINTS / "poly-sqrt"), "--output", str(output), "--json"]
    assert run(words, commands()) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["architecture"] == "poly"
    assert printed["fingerprint"] == load_model(output, **CPU).fingerprint()
    assert run(words, commands()) == 0  # a model there is replaced
