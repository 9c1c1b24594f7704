import pytest
import torch

from polyrank.errors import UsageError
from polyrank.runtime import has_bfloat16, resolve_device, resolve_dtype, set_seed

CPU = torch.device("cpu")


def test_devices():
    assert resolve_device("cpu") == CPU
    assert resolve_device(CPU) == CPU
    assert resolve_device("auto").type in ("cpu", "cuda", "mps")
    with pytest.raises(UsageError, match="toaster"):
        resolve_device("toaster")


def test_dtypes():
    assert resolve_dtype("float32", CPU) == torch.float32
    assert resolve_dtype(torch.bfloat16, CPU) == torch.bfloat16
    expected = torch.bfloat16 if has_bfloat16(CPU) else torch.float32
    assert resolve_dtype("auto", CPU) == expected
    with pytest.raises(UsageError, match="float8"):
        resolve_dtype("float8", CPU)


def test_bfloat16_is_chosen_by_instructions(monkeypatch):
    for names, expected in (((), False), (("avx512_bf16",), True), (("amx_bf16",), True)):
        found = dict.fromkeys(names, True)
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=found: found)
        assert has_bfloat16(CPU) is expected


def test_a_seed_repeats_what_is_drawn():
    drawn = []
    for _ in range(2):
        set_seed(3)
        drawn.append(torch.rand(3))
    assert torch.equal(*drawn)
