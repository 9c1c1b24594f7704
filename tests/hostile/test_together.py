"""Processes together: workers that share an index, beside a writer; two that make one output."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from polyrank.cli.main import commands, run
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import load_model
from polyrank.models.poly_encoder import PolyEncoder
from polyrank.retrieval.index import Index
from polyrank.training.run import train

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
        writer = multiprocessing.get_context(method).Process(target=write, args=(path,))
        writer.start()
        loader = DataLoader(
            Searches(path),
            batch_size=None,
            num_workers=2,
            multiprocessing_context=method,
            persistent_workers=True,
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
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, b"done\n"), done.stderr.decode()


def test_of_two_trainings_of_one_output_the_second_is_refused(bert, tmp_path, capsys):
    """The lock does not ask whether it is the same process."""
    pairs = [{"context": f"what is {n}", "response": f"it is {n}"} for n in range(64)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    line = f"train --arch bi --base {bert} --train {tmp_path}/pairs.jsonl --max-steps 2"
    line += f" --output {tmp_path}/made"
    refused = []

    def say(words):
        if words.startswith("step 1"):
            code = run(line.split(), commands())
            refused.append((code, "Another process is training" in capsys.readouterr().err))

    model = BiEncoder.from_pretrained(bert, device="cpu", dtype="float32")
    train(model, pairs, tmp_path / "made", batch_size=8, max_steps=2, evaluations=2, say=say)
    assert refused == [(2, True)]
    load_model(tmp_path / "made", device="cpu")
