import random
from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch import nn

from polyrank.config import field_types
from polyrank.training.config import TrainingConfig, without_effect
from polyrank.training.optimisers import PlateauSchedule, build_schedule, warmup_steps


def plateau(warmup=2):
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = torch.ones(1)
    optimiser = torch.optim.Adamax([{"params": [parameter], "lr": 0.3}])
    return optimiser, PlateauSchedule(optimiser, warmup, 0.4)


def rates(optimiser, schedule, steps):
    seen = []
    for _ in range(steps):
        seen.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    return seen


def test_the_learning_rate_warms_up_and_falls_when_the_loss_does_not():
    optimiser, schedule = plateau()
    schedule.observe(0.1)  # during the warm-up, which does not count
    assert rates(optimiser, schedule, 4) == pytest.approx([0.1, 0.2, 0.3, 0.3])
    schedule.observe(0.6)
    schedule.observe(0.5)
    assert rates(optimiser, schedule, 1) == pytest.approx([0.3])
    schedule.observe(0.49999)  # lower, but by less than the threshold
    assert rates(optimiser, schedule, 2) == pytest.approx([0.12, 0.12])
    schedule.observe(0.4)
    schedule.observe(0.45)
    assert rates(optimiser, schedule, 1) == pytest.approx([0.048])


@pytest.mark.parametrize("seed", range(5))
def test_a_plateau_is_what_torch_takes_for_one(seed):
    draw = random.Random(seed)
    optimiser, schedule = plateau(warmup=0)
    other, _ = plateau(warmup=0)
    other.param_groups[0]["lr"] = 0.3
    reference = torch.optim.lr_scheduler.ReduceLROnPlateau(other, factor=0.4, patience=0)
    loss = 1.0
    for _ in range(12):
        loss *= draw.choice([1, 1 - 1e-5, 1 - 1e-3, 0.9, 1.02])
        rates(optimiser, schedule, 1)
        schedule.observe(loss)
        reference.step(loss)
        found = optimiser.param_groups[0]["lr"]
        assert found == pytest.approx(other.param_groups[0]["lr"], rel=1e-6, abs=1e-8)
    assert found < 0.3


def test_the_schedule_goes_on_where_it_was():
    optimiser, schedule = plateau()
    rates(optimiser, schedule, 3)
    schedule.observe(0.5)
    schedule.observe(0.4)
    other_optimiser, other = plateau()
    other_optimiser.load_state_dict(optimiser.state_dict())
    other.load_state_dict(schedule.state_dict())
    for figure in (0.45, 0.6, 0.1):
        assert rates(optimiser, schedule, 2) == rates(other_optimiser, other, 2)
        schedule.observe(figure)
        other.observe(figure)
    assert schedule.state_dict() == other.state_dict()


@pytest.mark.parametrize(("warmup", "steps"), [(0.1, 4), (0.0, 0), (100.0, 100), (1.0, 1)])
def test_warm_up_is_a_share_or_a_number_of_steps(warmup, steps):
    assert warmup_steps(TrainingConfig(warmup=warmup), 33) == steps


@pytest.mark.parametrize("name", get_args(field_types(TrainingConfig)["schedule"]))
def test_every_schedule_can_be_built(name):
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    build_schedule(optimiser, TrainingConfig(schedule=name), 10)


def test_the_inverse_square_root_follows_the_warm_up():
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.4)
    config = TrainingConfig(schedule="inverse_sqrt", warmup=4.0)
    found = rates(optimiser, build_schedule(optimiser, config, 40), 37)
    assert found[:5] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert [found[16], found[36]] == pytest.approx([0.2, 0.4 / 3])


def test_settings_without_effect_are_named():
    idle = TrainingConfig(
        optimiser="adamax", weight_decay=0.1, plateau_factor=0.5, epochs=9.0, max_steps=3
    )
    assert without_effect(idle) == {
        "weight_decay": "optimiser",
        "plateau_factor": "schedule",
        "epochs": "max_steps",
    }
    assert without_effect(idle, replace(idle, max_steps=None)) == {}
    assert without_effect(TrainingConfig()) == {}
