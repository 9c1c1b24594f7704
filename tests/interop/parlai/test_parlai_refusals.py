"""What is not a ParlAI ranker, or would score otherwise, is refused; no code of a file is run."""

import json
import os
import pickle
import sys
import types
import zipfile

import numpy as np
import pytest
import torch
from parlai_cases import CHECKPOINTS, copy_of

from polyrank.cli.main import commands, run
from polyrank.errors import ModelError, UsageError
from polyrank.interop.parlai.files import read_state
from polyrank.interop.parlai.importing import import_checkpoint
from polyrank.interop.parlai.options import AGENTS
from tiny_encoders import load_variant


def refused(folder, *words, kind=ModelError):
    """Import must fail with these words, and leave nothing behind."""
    output = folder.parent / "made" / "model"
    with pytest.raises(kind) as caught:
        import_checkpoint(folder, output)
    for word in words:
        assert word in str(caught.value)
    assert caught.value.remedy.endswith(("." if kind is ModelError else "", ".", "?"))
    assert not output.parent.exists()


class Code:
    """What runs `os.mkdir` when it is unpickled."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (str(self.place),)


@pytest.mark.parametrize("zipped", [True, False])
def test_code_of_a_checkpoint_is_never_run(zipped, tmp_path):
    folder = copy_of("poly-sqrt", tmp_path)
    state = torch.load(folder / "model", weights_only=True)
    mark = tmp_path / "was run"
    torch.save(
        {**state, "code": Code(mark)}, folder / "model", _use_new_zipfile_serialization=zipped
    )
    refused(folder, "would run", "mkdir", "If you trust the file", "weights_only=False")
    assert not mark.exists()
    torch.load(folder / "model", weights_only=False)  # it would have
    assert mark.exists()


@pytest.mark.parametrize("how", ["compressed", "one entry many times", "one number many times"])
def test_weights_that_expand_are_refused(how, tmp_path):
    folder = copy_of("poly-sqrt", tmp_path)
    state = torch.load(folder / "model", weights_only=True)
    name = next(iter(state["model"]))
    zeros = torch.zeros(1 << 20)
    state["model"][name] = torch.zeros(1).expand(1 << 20) if how.startswith("one number") else zeros
    torch.save(state, folder / "model")
    if how == "compressed":
        entries = zipfile.ZipFile(folder / "model")
        with zipfile.ZipFile(folder / "small", "w", zipfile.ZIP_DEFLATED) as small:
            for entry in entries.infolist():
                small.writestr(entry.filename, entries.read(entry))
        (folder / "small").replace(folder / "model")
    elif how == "one entry many times":
        with zipfile.ZipFile(folder / "model", "a") as archive:
            archive.infolist().extend(archive.infolist())
            archive.filelist[-1].file_size *= 2
            archive._didModify = True
    refused(folder, "larger than the file" if "number" not in how else "more numbers")


class Opt(dict):
    """Pickles itself as ParlAI's options do."""

    def __reduce__(self):
        return Opt, (), ([], [], dict(self))


def test_options_and_numbers_within_an_old_checkpoint_are_harmless(tmp_path, monkeypatch):
    file = copy_of("poly-sqrt", tmp_path) / "model"
    expected = read_state(file)
    module = types.ModuleType("parlai.core.opt")
    module.Opt = Opt
    monkeypatch.setattr(Opt, "__module__", "parlai.core.opt")
    with monkeypatch.context() as patch:
        for name in ("parlai", "parlai.core"):
            patch.setitem(sys.modules, name, types.ModuleType(name))
        patch.setitem(sys.modules, "parlai.core.opt", module)
        more = {"opt": Opt(lr=0.1), "best_valid": np.float64(0.5), "lr_steps": np.int64(3)}
        torch.save({"model": expected, **more}, file)
    assert b"parlai.core.opt" in file.read_bytes()
    found = read_state(file)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize("end", ["", ".opt", ".dict", ".dict.codecs"])
def test_a_missing_file_is_named(end, tmp_path):
    folder = copy_of("poly-published", tmp_path)
    (folder / f"model{end}").unlink()
    refused(folder, f"model{end}")


@pytest.mark.parametrize("end", ["-vocab.json", "-merges.txt"])
def test_missing_pieces_are_named(end, tmp_path):
    folder = copy_of("poly-both-sqrt", tmp_path)
    (folder / f"model.dict{end}").unlink()
    refused(folder, f"model.dict{end}")


def test_missing_pieces_of_gpt2_say_where_parlai_has_them(tmp_path):
    folder = copy_of("bi-separate", tmp_path)
    (folder / "gpt2" / "vocab.bpe").unlink()
    refused(folder, "vocab.bpe", "folder gpt2")


@pytest.mark.parametrize("kept", [0, 10, 3000, -200])
def test_a_truncated_file_is_damaged(kept, tmp_path):
    folder = copy_of("poly-sqrt", tmp_path)
    data = (folder / "model").read_bytes()
    (folder / "model").write_bytes(data[:kept])
    refused(folder, "cannot be read", "download or copy it again")


@pytest.mark.parametrize("content", [b"no model at all", b"PK\x03\x04 nothing", pickle.dumps([1])])
def test_another_file_is_not_a_checkpoint(content, tmp_path):
    folder = copy_of("poly-sqrt", tmp_path)
    (folder / "model").write_bytes(content)
    refused(folder, "not a ParlAI checkpoint")


@pytest.mark.parametrize("saved", [{"weights": {}}, [1, 2], {"model": {"a": 1}}])
def test_a_file_of_torch_without_weights_is_not_a_checkpoint(saved, tmp_path):
    folder = copy_of("poly-sqrt", tmp_path)
    torch.save(saved, folder / "model")
    refused(folder, "not a ParlAI checkpoint")


@pytest.mark.parametrize("text", ["{", "[1]", "\x80\x04"])
def test_options_that_are_not_an_object_are_refused(text, tmp_path):
    folder = copy_of("poly-sqrt", tmp_path)
    (folder / "model.opt").write_text(text)
    refused(folder, "model.opt")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "transformer/generator"}, ["'transformer/generator'", *AGENTS]),
        ({"model": "bert_ranker/bi_encoder_ranker"}, ["'bert_ranker/bi_encoder_ranker'"]),
        ({"model": None}, ["None"]),
        ({"poly_attention_type": "multihead"}, ["poly_attention_type = 'multihead'", "basic"]),
        ({"codes_attention_type": "multihead"}, ["codes_attention_type = 'multihead'"]),
        ({"dict_tokenizer": "nltk"}, ["dict_tokenizer = 'nltk'", "bytelevelbpe"]),
        ({"variant": "other"}, ["variant = 'other'", "prelayernorm"]),
        ({"activation": "silu"}, ["activation = 'silu'"]),
        ({"reduction_type": "none"}, ["reduction_type = 'none'"]),
        ({"person_tokens": True}, ["person_tokens"]),
        ({"special_tok_lst": "A,B"}, ["special_tok_lst"]),
        ({"history_reversed": True}, ["history_reversed"]),
        ({"dict_max_ngram_size": 2}, ["dict_max_ngram_size"]),
        ({"split_lines": True, "delimiter": " "}, ["split_lines"]),
        ({"n_heads": None}, ["n_heads", "None"]),
        ({"dict_nulltoken": 0.5}, ["dict_nulltoken as a text, got 0.5"]),
        ({"text_truncate": [1]}, ["text_truncate as a whole number, got [1]"]),
        ({"dropout": 2}, ["dropout as a number from 0 to 1, got 2"]),
        ({"fp16": "no"}, ["fp16 as true or false, got 'no'"]),
        ({"n_encoder_layers": 1 << 29}, ["lack 'encoder_ctxt.layers."]),
        ({"n_heads": 3}, ["embedding_size = 8", "n_heads = 3"]),
        ({"dict_endtoken": "__start__"}, ["special tokens"]),
        ({"n_encoder_layers": 3}, ["lack 'encoder_ctxt.layers.2."]),
        ({"n_encoder_layers": 1}, ["do not ask for", "encoder_cand.layers.1."]),
        ({"variant": "xlm"}, ["lack 'encoder_ctxt.norm_embeddings.weight'"]),
        ({"n_segments": 2}, ["lack 'encoder_ctxt.segment_embeddings.weight'"]),
        ({"ffn_size": 24}, ["misshapen"]),
        ({"force_fp16_tokens": True}, ["tokens, but the weights", "word vectors"]),
    ],
)
def test_options_that_cannot_be_kept_are_named(options, words, tmp_path):
    refused(copy_of("poly-sqrt", tmp_path, **options), *words)


def test_codes_are_never_made_up(tmp_path):
    folder = copy_of("poly-published", tmp_path)
    state = torch.load(folder / "model", weights_only=True)["model"]
    del state["codes"]
    torch.save({"model": state}, folder / "model")
    refused(folder, "lack 'codes'")


@pytest.mark.parametrize("change", ["shorter", "longer"])
def test_a_dictionary_of_another_size_is_refused(change, tmp_path):
    folder = copy_of("poly-sqrt", tmp_path)
    lines = (folder / "model.dict").read_text().splitlines()
    lines = lines[:-1] if change == "shorter" else [*lines, "extraordinary\t1"]
    (folder / "model.dict").write_text("\n".join(lines) + "\n")
    refused(folder, "model.dict has", "word vectors", "--fp16")


@pytest.mark.parametrize(
    ("text", "word"),
    [("", "#version: 0.2"), ("t h\ne r\n", "#version: 0.2"), ("#version: 0.2\nt h e\n", "line 2")],
)
def test_damaged_merges_are_refused(text, word, tmp_path):
    folder = copy_of("poly-published", tmp_path)
    (folder / "model.dict.codecs").write_text(text)
    refused(folder, "model.dict.codecs", word)


@pytest.mark.parametrize("end", ["-vocab.json", "-merges.txt"])
def test_damaged_pieces_are_refused(end, tmp_path):
    folder = copy_of("poly-both-sqrt", tmp_path)
    (folder / f"model.dict{end}").write_text("{ no\nno no no\n")
    refused(folder, f"model.dict{end}")


def test_what_is_at_the_output_is_not_replaced(tmp_path):
    output = tmp_path / "mine"
    output.mkdir()
    (output / "diary.txt").write_text("dear diary")
    with pytest.raises(UsageError, match="already exists and is not a model"):
        import_checkpoint(CHECKPOINTS / "poly-sqrt", output)
    assert [file.name for file in output.iterdir()] == ["diary.txt"]


def test_a_failed_import_leaves_the_model_that_was_there(tmp_path):
    output = tmp_path / "model"
    import_checkpoint(CHECKPOINTS / "poly-sqrt", output)
    before = {file.name: file.stat().st_mtime_ns for file in output.iterdir()}
    with pytest.raises(ModelError):
        import_checkpoint(copy_of("poly-sqrt", tmp_path, ffn_size=24), output)
    assert {file.name: file.stat().st_mtime_ns for file in output.iterdir()} == before
    assert {file.name for file in tmp_path.iterdir()} == {"model", "poly-sqrt"}


def test_what_polyrank_reads_needs_no_import(bert, tmp_path):
    load_variant("bi", bert).save_pretrained(tmp_path / "own")
    for folder, kind in ((tmp_path / "own", "a polyrank model"), (bert, "an encoder")):
        with pytest.raises(UsageError, match=rf"is {kind}.*Use it directly"):
            import_checkpoint(folder, tmp_path / "made")
    with pytest.raises(UsageError, match=r"a polyrank model.*Use it directly"):
        import_checkpoint(tmp_path / "own" / "model.safetensors", tmp_path / "made")


def test_several_models_in_a_folder_need_the_file(tmp_path):
    folder = copy_of("poly-sqrt", tmp_path)
    for file in list(folder.glob("model*")):
        data = file.read_bytes()
        file.unlink()
        for name in ("first", "second"):
            file.with_name(file.name.replace("model", name, 1)).write_bytes(data)
    refused(folder, "first, second", "model file", kind=UsageError)


def test_the_command_exits_with_two_and_two_sentences(tmp_path, capsys):
    words = ["import", str(tmp_path / "none"), "--output", str(tmp_path / "model"), "--json"]
    assert run(words, commands()) == 2
    printed = json.loads(capsys.readouterr().out)["error"]
    assert printed["type"] == "ModelError"
    assert printed["message"].startswith(f"There is no ParlAI checkpoint at {tmp_path / 'none'}. ")
    assert not (tmp_path / "model").exists()


def test_a_file_without_options_and_dictionary_is_not_a_checkpoint(tmp_path):
    (tmp_path / "faq.csv").write_text("question,answer\n")
    refused(tmp_path / "faq.csv", "not a ParlAI checkpoint", "faq.csv.opt")
