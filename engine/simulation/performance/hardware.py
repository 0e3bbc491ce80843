"""Cost models of dense transformers on accelerators, worked out from shapes and data sheets.

Everything here is arithmetic on published shapes and on assumed efficiencies: nothing was measured
on such hardware. What it is good for is how stages compare, and where the bottleneck moves.

Decode step of n sequences on one replica: the weights are read once (memory bandwidth), launching
and sampling cost a fixed time, and each sequence costs 2 FLOP a parameter and the reading of its
KV. A pool of replicas is taken as one engine that spreads its sequences evenly, so a sequence more
costs the pool a replica's cost by the number of replicas.

Training pass: 6 FLOP a parameter and token. Weights are frozen, so their gradients (a third of the
usual 6) are saved, and recomputing activations costs about as much again. To that comes a fixed
time: reading adapter and optimiser, launching, writing and publishing the new version.
"""

from __future__ import annotations

from dataclasses import dataclass

from .cost_models import CostModel, EngineCost
from .workload import AMC, GSM, MIX, SEARCH, Kind

MEAN_CONTEXT = 700  # tokens held by a sequence of the mix at work, roughly; for reading KV
STEP_TOKENS = {GSM.name: 75_000, AMC.name: 300_000, SEARCH.name: 115_000}  # mean of 64 x 4


@dataclass(frozen=True)
class Accelerator:
    """Of one device. Efficiencies are assumptions: what large matrix products and reads reach."""

    name: str
    memory_bytes: float
    bytes_per_s: float
    flops: float
    decode_flops_share: float = 0.4
    bytes_share: float = 0.6
    training_flops_share: float = 0.3
    usable_memory: float = 0.85


@dataclass(frozen=True)
class Shape:
    """A base model in bfloat16. Layers, KV heads and head size are its public configuration's."""

    name: str
    parameters: float
    layers: int
    kv_heads: int
    head_size: int
    devices_per_replica: int
    fixed_step_s: float  # launching, sampling, and adding up over devices: assumed
    fixed_pass_s: float  # assumed

    @property
    def kv_bytes(self) -> int:
        """Of a token."""
        return 2 * self.layers * self.kv_heads * self.head_size * 2


# 64 GiB and 1.6 TB/s HBM2e, 320 TFLOP/s in half precision: as reported for Ascend 910B; the vendor
# publishes no data sheet with all three.
ASCEND_910B = Accelerator("Ascend 910B", 64 * 2**30, 1.6e12, 320e12)

QWEN3_0_6B = Shape("0.6B", 0.6e9, 28, 8, 128, 1, fixed_step_s=0.010, fixed_pass_s=2.0)
QWEN3_14B = Shape("14B", 14.8e9, 40, 8, 128, 2, fixed_step_s=0.012, fixed_pass_s=3.0)
QWEN3_32B = Shape("32B", 32.8e9, 64, 8, 128, 4, fixed_step_s=0.015, fixed_pass_s=4.0)
SHAPES = (QWEN3_0_6B, QWEN3_14B, QWEN3_32B)

SLOTS_PER_REPLICA = 256  # vLLM's usual max_num_seqs
ACTIVATIONS_BYTES = 6 * 2**30  # of a device, kept free of KV: assumed


def cost_model(
    shape: Shape, devices: int = 64, accelerator: Accelerator = ASCEND_910B
) -> CostModel:
    """Half of the devices generate, as one pool; the other half train, as one trainer."""
    return CostModel(
        name=f"{shape.name} on {devices} x {accelerator.name}",
        engine=_pool(shape, devices // 2, accelerator),
        pass_s={kind.name: _pass_s(shape, kind, devices // 2, accelerator) for kind in MIX},
        source="worked out in hardware.py from public shapes and assumed efficiencies",
    )


def _pool(shape: Shape, devices: int, accelerator: Accelerator) -> EngineCost:
    size = shape.devices_per_replica
    replicas = devices // size
    bytes_per_s = size * accelerator.bytes_per_s * accelerator.bytes_share
    flops = size * accelerator.flops * accelerator.decode_flops_share
    weights = 2 * shape.parameters
    computing_s = 2 * shape.parameters / flops
    reading_s = MEAN_CONTEXT * shape.kv_bytes / bytes_per_s
    free = size * (accelerator.memory_bytes * accelerator.usable_memory - ACTIVATIONS_BYTES)
    return EngineCost(
        step_s=shape.fixed_step_s + weights / bytes_per_s,
        sequence_s=(computing_s + reading_s) / replicas,
        slots=replicas * SLOTS_PER_REPLICA,
        prefill_s=computing_s / replicas,
        kv_tokens=int(replicas * (free - weights) / shape.kv_bytes),
    )


def _pass_s(shape: Shape, kind: Kind, devices: int, accelerator: Accelerator) -> float:
    flops = devices * accelerator.flops * accelerator.training_flops_share
    return shape.fixed_pass_s + 6 * shape.parameters * STEP_TOKENS[kind.name] / flops
