"""Processes together: workers that share an index, beside a writer; two that make one output."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from launching import started
from polyrank.cli.main import commands, run
from polyrank.models.checkpoint import load_model
from polyrank.models.poly_encoder import PolyEncoder
from polyrank.retrieval.index import Index

PROGRAM = textwrap.dedent("""
    import multiprocessing, sys, threading
    from torch.utils.data import DataLoader, Dataset
    from polyrank.retrieval.index import Index

    class Searches(Dataset):
        def __init__(self, path):
            self.index = Index.open(path, device="cpu", dtype="float32")

        def __len__(self):
            return 40

        def __getitem__(self, number):
            if number % 10 == 0:
                self.index.refresh()
            hits = self.index.search(f"text {number}", top_k=5)
            return [hit.id for hit in hits], [hit.score for hit in hits]

    def write(path):
        with Index.open(path, device="cpu", dtype="float32") as writer:
            for number in range(6):
                writer.add([(f"new{number}", "something else entirely")])
                writer.delete([f"new{number}"])
            writer.compact()

    def main(path, method):
        here = Searches(path)
        expected = [here[number][0] for number in range(40)]
        writer = multiprocessing.get_context("spawn").Process(target=write, args=(path,))
        writer.start()
        loader = DataLoader(
            Searches(path), batch_size=None, num_workers=2, multiprocessing_context=method
        )
        for _ in range(2):
            for (names, scores), old in zip(loader, expected):
                kept = [name for name in names if not name.startswith("new")]
                assert kept == old[: len(kept)] and len(kept) >= 4, (kept, old)
                assert sorted(scores, reverse=True) == list(scores)
        writer.join()
        assert writer.exitcode == 0
        print("done")

    if __name__ == "__main__":
        main(*sys.argv[1:])
""")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_search_while_a_writer_writes(method, bert, tmp_path):
    model = PolyEncoder.from_pretrained(bert, num_codes=4, device="cpu", dtype="float32")
    texts = [(f"id{number}", f"text {number} of a file") for number in range(60)]
    Index.build(model, texts, tmp_path / "index").close()
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, script, tmp_path / "index", method],
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, b"done\n"), done.stderr.decode()


TRAIN = "train --arch bi --base {bert} --train pairs.jsonl --max-steps 9999 --output made"


def test_of_two_trainings_of_one_output_the_second_is_refused(bert, tmp_path, monkeypatch):
    pairs = [{"context": f"what is {n}", "response": f"it is {n}"} for n in range(64)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    line = TRAIN.format(bert=bert)
    first = started(line.split(), cwd=tmp_path)
    assert any(words.startswith(b"Training") for words in first.stdout)
    second = started(line.split(), cwd=tmp_path)
    _, told = second.communicate(timeout=120)
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=120)
    assert (second.returncode, b"Another process is training" in told) == (2, True), told
    monkeypatch.chdir(tmp_path)
    assert run(line.replace("9999", "2 --restart").split(), commands()) == 0
    load_model(tmp_path / "made", device="cpu")
