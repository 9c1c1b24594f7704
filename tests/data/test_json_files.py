import json

import pytest

from polyrank.data.json_files import read_json_array


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_arrays_are_read_piece_by_piece(chunk, indent, tmp_path, monkeypatch):
    monkeypatch.setattr("polyrank.data.json_files.PIECE", chunk)
    items = [{"a": [1, 2]}, 12345, "tęxt, ] [", -1.5e3, None, [], {"b": "\n"}]
    path = tmp_path / "array.json"
    path.write_text(json.dumps(items, indent=indent, ensure_ascii=False), encoding="utf-8")
    found = list(read_json_array(path))
    assert [item for _, item in found] == items
    lines = path.read_text(encoding="utf-8").split("\n")
    if indent:
        assert [line for line, _ in found] == [
            number
            for number, text in enumerate(lines, start=1)
            if text[:1] == " " and text[1:2] not in (" ", "}", "]")
        ]
    path.write_text("[ ]")
    assert list(read_json_array(path)) == []
