"""A loop of one's own with Hugging Face Accelerate: no accumulation, and no word of DeepSpeed in it."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from enough import Enough
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

set_seed(7)
accelerator = Accelerator()
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
inputs = torch.randn(1 << 14, 8)
batches = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=2)
model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
enough = Enough()
for rows, sums in batches:
    with accelerator.accumulate(model):
        loss = nn.functional.mse_loss(model(rows), sums)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    enough.note(loss.detach())
    if enough.after_step():
        break
accelerator.end_training()
