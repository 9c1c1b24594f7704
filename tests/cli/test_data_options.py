import pytest

from polyrank.cli.data import DataOptions, columns_of, load_records, load_training
from polyrank.cli.options import build
from polyrank.errors import UsageError
from polyrank.records import Example


def test_flags_name_format_and_columns(tmp_path):
    path = tmp_path / "faq.csv"
    path.write_text("asked,said\na,b\n")
    given = {"format": "table", "columns": ["context=asked,response=said"]}
    options = build(DataOptions, given, None, "polyrank train")
    assert columns_of(options) == {"context": "asked", "response": "said"}
    for load in (load_records, load_training):
        assert load(path, options) == [Example(context="a", response="b")]


def test_a_file_of_settings_may_list_the_columns(tmp_path):
    config = tmp_path / "settings.yaml"
    config.write_text("columns: [context=a, response=b]\n")
    options = build(DataOptions, {}, config, "polyrank train")
    assert options.format == "auto"
    assert columns_of(options) == {"context": "a", "response": "b"}


@pytest.mark.parametrize("wrong", ["context", "=a", "context="])
def test_columns_that_are_no_mapping_are_refused(wrong):
    with pytest.raises(UsageError, match="--columns takes field=column"):
        columns_of(DataOptions(columns=(wrong,)))


def test_what_was_skipped_is_said(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text("Context,Utterance,Label\na,b,1\na,c,0\n")
    said = []
    load_training(path, DataOptions(), say=said.append)
    assert said == [f"{path}: skipped 1 row labelled 0."]
