"""A training framework of somebody else's, which perseus_ds has never heard of."""

import torch
from torch import nn


class Trainer:
    def __init__(self, microbatches: int) -> None:
        torch.manual_seed(1)
        self.microbatches = microbatches
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(self.model(inputs), torch.sin(inputs))

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def step(self) -> list[str]:
        losses = []
        for _ in range(self.microbatches):
            loss = self.forward(torch.randn(2, 8))
            self.backward(loss)
            losses.append(float(loss.detach()).hex())
        self.optimizer.step()
        self.optimizer.zero_grad()
        return losses
