"""Which losses stop a run, and which do not."""

import json
import random

import pytest

from polyrank import BiEncoder
from polyrank.records import Example
from polyrank.runtime import set_seed
from polyrank.training.config import TrainingConfig
from polyrank.training.divergence import WINDOW, DivergenceGuard
from polyrank.training.run import train

WORDS = ["file", "disk", "kernel", "driver", "wifi", "sound", "screen", "index", "list", "sort"]


def stopped_at(losses):
    """The place of the loss that stops the run, if one does."""
    guard = DivergenceGuard()
    return next((place for place, loss in enumerate(losses) if guard.has_diverged(loss)), None)


def healthy(kind, seed, count=2000):
    """Losses of runs that learn, or have nothing more to learn."""
    draw = random.Random(seed)
    for step in range(count):
        if kind == "good base, small batches":  # mostly nothing, now and then a hard example
            yield 0.006 if step == 0 else draw.expovariate(1 / 0.15) * draw.choice([0.1, 0.1, 8])
        elif kind == "falling from far above":
            yield 11.7 * 0.97**step + 2 + draw.gauss(0, 0.3)
        elif kind == "tasks in turn":
            yield abs(draw.choice([0.7, 0.7, 8.0]) + draw.gauss(0, 0.1))
        elif kind == "teacher's margins":
            yield draw.lognormvariate(3, 1)
        else:
            yield 4.16 + draw.gauss(0, 0.02)


KINDS = ["good base, small batches", "falling from far above", "tasks in turn"]
KINDS += ["teacher's margins", "nothing learnt"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(10))
def test_a_healthy_run_is_not_stopped(kind, seed):
    assert stopped_at(healthy(kind, seed)) is None


@pytest.mark.parametrize("high", [4.9, 1e3, 1e12])
def test_single_high_losses_are_no_divergence(high):
    losses = [0.006, *[0.1] * 40, high, *[0.1] * 40, *[high] * 8, *[0.1] * 40]
    assert stopped_at(losses) is None
    assert stopped_at([0.006, 1.3] * 60) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("growth", [1.02, 1.3])
def test_a_loss_that_grows_stops_the_run(kind, growth):
    losses = list(healthy(kind, 0, 200))
    grown = [10 * growth**step for step in range(1200)]
    found = stopped_at(losses + grown)
    assert found is not None
    assert found >= 200


def test_a_loss_that_jumps_and_stays_stops_the_run():
    assert stopped_at([0.5] * 100 + [4.16] * 100) == 100 + WINDOW // 2 - 1
    assert stopped_at([0.5] * 100 + [1.4] * 100) is None


def test_what_was_seen_outlives_an_interruption(bert, tmp_path):
    examples = [
        Example(context=f"my {WORDS[n % 7]} {n % 4}", response=f"the {WORDS[n * 3 % 10]} {n}")
        for n in range(24)
    ]

    def go(say):
        set_seed(0)
        model = BiEncoder.from_pretrained(bert, dtype="float32", device="cpu")
        config = TrainingConfig(batch_size=4, max_steps=40, evaluations=2)
        return train(model, examples, tmp_path / "out", config, say=say)

    def stop(words):
        if words.startswith("step 24/"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(stop)
    state = tmp_path / ".out.training" / "checkpoint-20" / "trainer_state.json"
    kept = json.loads(state.read_text())["stateful_callbacks"]["DivergenceGuard"]["attributes"]
    assert len(kept["losses"]) == 20
    seen = []
    judge = DivergenceGuard.has_diverged

    def look(guard, loss):
        seen.append(list(guard.losses))
        return judge(guard, loss)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DivergenceGuard, "has_diverged", look)
        go(lambda words: None)
    assert seen[0] == kept["losses"]
