"""Checkpoints that `scripts/parlai_checkpoints.py` made with ParlAI's own agents."""

import json
import shutil
from pathlib import Path

CHECKPOINTS = Path(__file__).parent / "checkpoints"
NAMES = sorted(folder.name for folder in CHECKPOINTS.iterdir())
CPU = {"device": "cpu", "dtype": "float32"}


def expected_of(name):
    """What ParlAI made of the texts."""
    return json.loads((CHECKPOINTS / name / "expected.json").read_text(encoding="utf-8"))


def copy_of(name, parent, **options):
    """A copy of a checkpoint below `parent`, some of its options changed."""
    folder = shutil.copytree(CHECKPOINTS / name, parent / name)
    file = folder / "model.opt"
    file.write_text(json.dumps(json.loads(file.read_text()) | options))
    return folder
