"""torchtitan's own trainer on CPUs: its arguments are the job's, this only stands in for the CUDA device."""

import os
import sys
from types import ModuleType, SimpleNamespace

import torch
from enough import Enough
from torch.distributed.fsdp import FSDPModule


class Cpu(ModuleType):
    """``torch.cpu`` with what torchtitan asks of ``torch.cuda`` to print."""

    def __getattr__(self, name: str):
        return getattr(torch.cpu, name)

    get_device_name = staticmethod(lambda _: "CPU")
    get_device_properties = staticmethod(lambda _: SimpleNamespace(total_memory=1 << 30))
    reset_peak_memory_stats = empty_cache = staticmethod(lambda: None)
    memory_stats = staticmethod(lambda _: {})
    current_device = staticmethod(lambda: 0)


def without_triton() -> None:
    """Leave out the kernels of experts, which no dense model calls: CPU wheels of torch have no triton."""
    kernels = sys.modules["torchtitan.models.moe.kernels"] = ModuleType("kernels")
    kernels.generate_permute_indices = None


def by_sums() -> None:
    """Let FSDP2 divide what it has summed: gloo cannot multiply on the way."""
    divided = FSDPModule.set_gradient_divide_factor

    def set_gradient_divide_factor(self: FSDPModule, factor: float) -> None:
        divided(self, factor)
        self.set_force_sum_reduction_for_comms(True)

    FSDPModule.set_gradient_divide_factor = set_gradient_divide_factor


os.environ["LOCAL_RANK"] = "0"  # torchtitan numbers devices by it, and there is one CPU
torch._utils._get_available_device_type = lambda: "cpu"
torch._utils._get_device_module = lambda _: Cpu("cpu")
torch.distributed.barrier, barrier = (
    lambda *_, **__: barrier(),  # gloo takes no device ids
    torch.distributed.barrier,
)
without_triton()
by_sums()

from torchtitan import train
from torchtitan.config import ConfigManager
from torchtitan.tools.logging import init_logger


class Watched(train.Trainer):
    """Keeps every loss, and ends as the test says."""

    def forward_backward_step(self, **inputs):
        loss = super().forward_backward_step(**inputs)
        enough.note(loss.item())
        return loss

    def should_continue_training(self) -> bool:
        return self.step == 0 or not enough.after_step()


enough = Enough()
init_logger()
trainer = Watched(ConfigManager().parse_args())
trainer.train()
trainer.close()
torch.distributed.destroy_process_group()
