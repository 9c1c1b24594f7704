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


def test_the_learning_rate_warms_up_and_falls_when_nothing_improves():
    optimiser, schedule = plateau()
    assert rates(optimiser, schedule, 4) == pytest.approx([0.1, 0.2, 0.3, 0.3])
    schedule.observe(0.5)
    assert rates(optimiser, schedule, 1) == pytest.approx([0.3])
    schedule.observe(0.5)  # no better
    assert rates(optimiser, schedule, 2) == pytest.approx([0.12, 0.12])
    schedule.observe(0.6)
    schedule.observe(0.55)
    assert rates(optimiser, schedule, 1) == pytest.approx([0.048])


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
    assert without_effect(idle) == ["weight_decay", "plateau_factor", "epochs"]
    assert without_effect(TrainingConfig()) == []
