"""A causal language model under Hugging Face's Trainer, as its examples have it; takes ds.json."""

import sys

import torch
from enough import Enough
from torch import distributed
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

WORDS, LENGTH = 64, 8


class Counting(Dataset):
    """Sequences that count up."""

    def __len__(self) -> int:
        return 1 << 14

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(LENGTH) + index) % WORDS
        return {"input_ids": tokens, "labels": tokens}


class Watched(Trainer):
    """Keeps every loss."""

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        enough.note(loss)
        return loss


class Ends(TrainerCallback):
    """Ends the job as any callback may."""

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = enough.after_step()


enough = Enough()
set_seed(7)
arguments = TrainingArguments(
    output_dir="out",
    deepspeed=sys.argv[1],
    use_cpu=True,
    ddp_backend="gloo",
    per_device_train_batch_size=2,
    gradient_accumulation_steps=4,
    max_steps=5000,
    learning_rate=1e-3,
    lr_scheduler_type="constant",
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    logging_steps=100,
)
model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=16, n_layer=2, n_head=2))
Watched(model=model, args=arguments, train_dataset=Counting(), callbacks=[Ends()]).train()
distributed.destroy_process_group()
