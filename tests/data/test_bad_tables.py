"""Tables as people have them: from a spreadsheet, in another encoding, with gaps."""

import codecs
import csv
import gzip
import io
import zipfile

import pytest

from polyrank.data.loading import load_records
from polyrank.errors import DataError
from polyrank.records import Example

ROWS = [
    ("How do I sort a list?", "Use sorted()."),
    ("What is a tuple?", "A sequence, which\nnever changes."),
    ('What is a "set"?', "Things; each once."),
]
KOREAN = [
    ("비밀번호를 잊었어요", "로그인 화면에서 재설정하세요."),
    ("배송은 얼마나 걸리나요?", "보통 이틀 걸립니다."),
    ("가게가 어디예요?", "강남역 가까이 있어요."),
]
JAPANESE = [
    ("パスワードを忘れました", "再設定してください。"),
    ("送料はいくらですか", "無料です。"),
]
CHINESE = [("我忘记了密码", "请在登录页面重置。"), ("运费是多少", "免费。")]
FRENCH = [("Où est le café ?", "À côté."), ("Ça va ?", "Très bien.")]


def table(rows, header=("question", "answer"), separator=","):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    writer.writerows([header, *rows] if header else rows)
    return text.getvalue()


def examples(rows):
    return [Example(context=context, response=response) for context, response in rows]


def write(tmp_path, content, name="faq.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("rows", [ROWS, KOREAN], ids=["english", "korean"])
@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-8", codecs.BOM_UTF8),
        ("utf-16-le", codecs.BOM_UTF16_LE),
        ("utf-16-be", codecs.BOM_UTF16_BE),
        ("utf-16-le", b""),
        ("utf-16-be", b""),
    ],
)
def test_unicode_is_read_with_and_without_its_mark(encoding, mark, rows, tmp_path):
    content = mark + table(rows).encode(encoding)
    assert load_records(write(tmp_path, content)) == examples(rows)
    packed = write(tmp_path, gzip.compress(content, mtime=0), "faq.csv.gz")
    assert load_records(packed) == examples(rows)


def test_utf_16_of_any_length_is_read_whole(tmp_path):
    rows = [(f"{n} 질문 {'가😀' * 30}", f"답 {n}") for n in range(3000)]
    assert load_records(write(tmp_path, table(rows).encode("utf-16"))) == examples(rows)
    lines = "".join(f'{{"question": "{a}", "answer": "{b}"}}\n' for a, b in rows)
    assert load_records(write(tmp_path, lines.encode("utf-16"), "faq.jsonl")) == examples(rows)


@pytest.mark.parametrize(
    ("rows", "encoding", "name"),
    [
        (KOREAN, "cp949", r"CP949 \(Korean\)"),
        (JAPANESE, "cp932", r"CP932 \(Japanese\)"),
        (CHINESE, "gb18030", r"GB18030 \(Chinese\)"),
        (FRENCH, "cp1252", r"CP1252 \(Western European\)"),
    ],
)
def test_another_encoding_is_named_with_the_command_that_converts_it(
    rows, encoding, name, tmp_path
):
    path = write(tmp_path, table(rows).encode(encoding))
    with pytest.raises(DataError, match="line 2: The text is not UTF-8") as caught:
        load_records(path)
    code = name.partition(" ")[0]
    with pytest.raises(DataError, match=rf"looks like {name}: iconv -f {code} -t UTF-8 .*faq.csv"):
        load_records(path)
    assert f"> {tmp_path / 'faq-utf8.csv'} converts it." in caught.value.remedy
    path.write_bytes(path.read_bytes().decode(code).encode())  # as iconv does
    assert load_records(path) == examples(rows)


def test_one_line_in_another_encoding_is_to_be_mended(tmp_path):
    path = write(tmp_path, table(KOREAN).encode() + "café,là\n".encode("latin-1"))
    with pytest.raises(
        DataError, match=r"line 5: .* The rest of the file is UTF-8: mend this line"
    ):
        load_records(path)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_csv_file_may_have_a_spreadsheets_separators(separator, tmp_path):
    path = write(tmp_path, table(ROWS, separator=separator))
    assert load_records(path) == examples(ROWS)


def test_a_name_with_a_semicolon_stays_one_column(tmp_path):
    path = write(tmp_path, table(ROWS, header=("question", "answer", "a;b;c;d")[:2]))
    assert load_records(path) == examples(ROWS)
    rows = [(*row, "x") for row in ROWS]
    path = write(tmp_path, table(rows, header=("question", "answer", '"a;b;c;d"')))
    assert load_records(path) == examples(ROWS)


@pytest.mark.parametrize(
    "header", [("Question", "ANSWER"), ("질문", "답변"), ("Q", "A"), (" question ", "answer")]
)
def test_usual_names_may_be_written_in_capitals_or_korean(header, tmp_path):
    assert load_records(write(tmp_path, table(ROWS, header=header))) == examples(ROWS)


def test_rows_with_empty_cells_are_counted_with_the_first(tmp_path):
    said = []
    rows = [ROWS[0], ("", "x"), ("y", ""), ROWS[1], ("z", "  "), (" ", "")]
    assert load_records(write(tmp_path, table(rows)), say=said.append) == examples(
        [ROWS[0], ROWS[1]]
    )
    path = tmp_path / "faq.csv"
    assert said[1:] == [
        f"{path}: skipped 2 rows with an empty context, the first in line 3.",
        f"{path}: skipped 2 rows with an empty response, the first in line 4.",
    ]
    with pytest.raises(DataError, match="no example; skipped: 1 row with an empty response"):
        load_records(write(tmp_path, "question,answer\nx,\n"))


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (
            table(ROWS, header=None),
            "faq.csv",
            r"line 1: The first line should name the columns, and reads 'How do I sort a list\?', "
            r"'Use sorted\(\)\.'\. Put a line with names above it, such as: context,response",
        ),
        ("question\nHow?\n", "faq.csv", "has only one column, 'question'. Give it a column of"),
        ("Frage,Antwort\na,b\n", "faq.csv", "--columns context=Frage,response=Antwort"),
        (table(ROWS, header=("text", "text")), "faq.csv", "Two columns are called 'text'"),
        ("question,answer\nHow?,This, that.\n", "faq.csv", "line 2: The line has 3 columns; 2"),
        ("", "faq.csv", r"faq.csv: The file is empty\. Give a file"),
        ("\n \n", "faq.csv", "The file is empty"),
        ("", "faq.txt", "The file is empty"),
        ("question,answer\n", "faq.csv", "The data hold no example"),
        (b"%PDF-1.4\n\xff", "faq.csv", "not a text but a PDF"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1" + bytes(600), "faq.csv", "an Excel workbook. Save it as CSV"),
        (
            gzip.compress(b"question,answer\na,b\n", mtime=0),
            "faq.csv",
            "compressed by gzip. Let its name",
        ),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(content, name, message, tmp_path):
    path = write(tmp_path, content, name)
    with pytest.raises(DataError, match=message) as caught:
        load_records(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("name", ["faq.xlsx", "faq.csv"])
def test_a_workbook_is_told_whatever_its_name(name, tmp_path):
    path = tmp_path / name
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("xl/workbook.xml", "<workbook/>")
    with pytest.raises(DataError, match=r"not a text but an Excel workbook. Save it as CSV"):
        load_records(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("faq.csv", "question,answer\n")
    with pytest.raises(DataError, match=r"not a text but a ZIP archive. Unpack it"):
        load_records(path)


def test_a_missing_file_is_told_the_nearest_name(tmp_path):
    write(tmp_path, table(ROWS))
    with pytest.raises(DataError, match=r"no such file\. Did you mean 'faq\.csv'\?"):
        load_records(tmp_path / "fqa.csv")
    with pytest.raises(DataError, match=r"no such file\. Check the path\."):
        load_records(tmp_path / "something-else.jsonl")
    with pytest.raises(DataError, match=r"There is no folder .*nowhere"):
        load_records(tmp_path / "nowhere" / "faq.csv")
