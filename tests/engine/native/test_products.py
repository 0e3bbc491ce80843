"""Products with a frozen matrix, alone and with adapters beside them.

By what this processor has, and by tiles in plain C where it has none.
"""

from __future__ import annotations

import copy
import ctypes
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from engine.adapters.layout import FUSED
from engine.native import build
from engine.native.build import native
from engine.native.structs import address
from engine.rollout import projection
from engine.rollout.projection import Projection
from tests.engine.native.test_kernels import ROWS, SHAPES, adapted, make_stack, some

needs_products = pytest.mark.skipif(
    not native().products, reason=native().reason or "no bfloat16 products on this processor"
)
TILES = Path(__file__).with_name("tiles.h")


@pytest.fixture(scope="module", params=["this processor's", "tiles in plain C"])
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if native().kernels is None or not native().products:
        pytest.skip(native().reason or "no bfloat16 products on this processor")
    if request.param == "this processor's":
        return native().kernels
    path = tmp_path_factory.mktemp("tiles") / "kernels.so"
    command = ["gcc", *build.FLAGS, "-include", TILES, "-o", path, *build.SOURCES]
    subprocess.run([*map(str, command)], check=True, timeout=120)
    return build._declared(ctypes.CDLL(str(path)))


def layers(*widths: int, num_in: int, bias: bool = False) -> list[nn.Linear]:
    torch.manual_seed(0)
    return [nn.Linear(num_in, width, bias=bias, dtype=torch.bfloat16) for width in widths]


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("num_rows", [1, 11, 12, 13, 15, 16, 17, 31, 32, 33, 48, 63, 150, 256, 300])
def test_rows_are_multiplied(kernels: Any, num_rows: int, has_bias: bool) -> None:
    torch.manual_seed(num_rows)
    x, weight, bias = some(num_rows, 160), some(192, 160), torch.randn(192)
    panels, out = projection._panels(weight), torch.full((num_rows + 1, 192), 7.0).bfloat16()
    kernels.product(num_rows, 160, 192, *map(address, (x, panels, bias if has_bias else None, out)))
    wanted = x.float() @ weight.float().T + (bias if has_bias else 0)
    torch.testing.assert_close(out[:-1].float(), wanted, rtol=1e-2, atol=1e-2)
    assert (out[:-1].float() - wanted).abs().mean() < 3e-3 * wanted.abs().mean()
    assert (out[-1] == 7.0).all()  # nothing else is written


@pytest.mark.parametrize("num_rows", [1, 13, 33, 257])
def test_a_plain_matrix_is_multiplied_and_shifts_are_taken_off(kernels: Any, num_rows: int) -> None:
    torch.manual_seed(num_rows)
    x, weight, shifts = some(num_rows, 160), some(96, 160), 40 * torch.randn(num_rows)
    out = some(num_rows, 96)
    kernels.plain_product(num_rows, 160, 96, *map(address, (x, weight, shifts, out)))
    wanted = x.float() @ weight.float().T - shifts[:, None]
    torch.testing.assert_close(out.float(), wanted, rtol=1e-2, atol=1e-2)
    assert (out.float() - wanted).abs().mean() < 3e-3 * wanted.abs().mean()


@pytest.mark.parametrize("fused", ["qkv", "o", "gate_up", "down"])
@pytest.mark.parametrize("copies", [1, 20])
def test_adapters_are_applied_beside_the_product(kernels: Any, fused: str, copies: int) -> None:
    """Of more units than there are panels, and of fewer; some rows have no adapter."""
    torch.manual_seed(0)
    stack, names = make_stack(), ROWS * copies
    num_out, num_in = projection_shape(fused)
    x, weight, bias = some(len(names), num_in), some(num_out, num_in), torch.randn(num_out)
    plan = stack.plan(names)
    sums = torch.full((len(names), num_out), float("nan"))
    deltas = torch.full((len(names), num_out), 7.0)
    arrays = (x, projection._panels(weight), bias, sums, deltas)
    kernels.adapted_product(len(names), plan.address, plan.target(1, fused), *map(address, arrays))
    product = x.float() @ weight.float().T + bias
    torch.testing.assert_close(sums, product, rtol=1e-4, atol=1e-4)
    order = plan.held[0][0].tolist()
    wanted = (adapted(1, fused, x, torch.zeros_like(sums), names))[order]
    is_adapted = wanted.abs().amax(1) > 0
    assert 0 < is_adapted.sum() < len(names)
    torch.testing.assert_close(deltas[is_adapted], wanted[is_adapted], rtol=2e-2, atol=2e-2)
    assert (deltas[[names[row] is None for row in order]] == 7.0).all()  # left alone


def projection_shape(fused: str) -> tuple[int, int]:
    """(out, in) of all its modules."""
    shapes = [SHAPES[f"model.layers.0.{module}"] for module in FUSED[fused]]
    return sum(out for out, _ in shapes), shapes[0][1]


@needs_products
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("num_rows", [1, 160, 161, 400])
def test_a_projection_multiplies_few_rows_as_many(num_rows: int, has_bias: bool) -> None:
    modules = layers(64, 32, 96, num_in=160, bias=has_bias)
    x = torch.randn(num_rows, 160).bfloat16()
    with torch.inference_mode():
        wanted = torch.cat([m.float()(x.float()) for m in copy.deepcopy(modules)], 1)
        product = Projection(modules)
        assert product._address
        got = product(x)
    torch.testing.assert_close(got.float(), wanted, rtol=1e-2, atol=1e-2)


def test_a_module_without_a_bias_beside_one_that_has_one() -> None:
    with_bias, without = layers(64, num_in=96, bias=True)[0], layers(32, num_in=96)[0]
    x = torch.randn(5, 96).bfloat16()
    with torch.inference_mode():
        wanted = torch.cat([with_bias(x), without(x)], 1)
        got = Projection([with_bias, without])(x)
    torch.testing.assert_close(got.float(), wanted.float(), rtol=1e-2, atol=1e-2)


@needs_products
def test_rows_of_another_width_are_refused() -> None:
    product = Projection(layers(64, num_in=96))
    with pytest.raises(AssertionError, match="64"):
        product(some(7, 64))
    with pytest.raises(AssertionError):
        product(some(2, 7, 96))


@pytest.mark.skipif(native().products != "tiles", reason="no AMX on this processor")
def test_what_does_not_lie_as_the_kernel_reads_it_is_left_to_onednn() -> None:
    weight = layers(64, num_in=64)[0].weight.data
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    assert projection._known_address(weight, packed)
    other = torch.ops.mkldnn._reorder_linear_weight(weight.flip(0), None)
    assert projection._known_address(weight, other) == 0
    odd = layers(40, num_in=64)[0].weight.data
    packed = torch.ops.mkldnn._reorder_linear_weight(odd, None)
    assert projection._known_address(odd, packed) == 0
