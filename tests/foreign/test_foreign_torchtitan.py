"""torchtitan's own trainer: pipelines of Llama debug models, sharded by FSDP2 or not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from programs import JOBS, block, judge, needed, run, torchrun, written

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]

WORDS = 2000
JOB = {
    "model.name": "llama3",
    "model.flavor": "debugmodel",
    "model.hf_assets_path": "tokenizer",
    "training.seq_len": "16",
    "training.dataset": "c4_test",
    "training.steps": "5000",
    "parallelism.pipeline_parallel_degree": "2",
    "debug.seed": "7",
    "metrics.log_freq": "1000",
}
FSDP2 = {
    "training.local_batch_size": "4",
    "parallelism.data_parallel_shard_degree": "2",
    "parallelism.pipeline_parallel_schedule": "1F1B",
}
ZBV = {"training.local_batch_size": "4", "parallelism.pipeline_parallel_schedule": "ZBVZeroBubble"}


@pytest.mark.parametrize(("job", "ranks", "replicas"), [(FSDP2, 4, 2), (ZBV, 2, 1)], ids=["fsdp2", "zbv"])
def test_a_job_saves_and_learns_the_same(
    tmp_path: Path, job: dict[str, str], ranks: int, replicas: int
) -> None:
    file = written(tmp_path / "block.json", block(tmp_path / "run"))
    assets(tmp_path)
    words = [f"--{key}={value}" for key, value in (JOB | job).items()]
    served = run([*torchrun(ranks), JOBS / "titan.py", *words], tmp_path, PERSEUS_CONFIG=str(file))
    plain = run([*torchrun(ranks), JOBS / "titan.py", *words], tmp_path, steps=served.steps)
    assert served.event("attached")["replicas"] == replicas
    judge(served, plain, most_slowdown_pct=10.0)


def assets(folder: Path) -> None:
    """The tokenizer and the texts that torchtitan's own configuration names, small and made here."""
    needed()
    (folder / "tokenizer").mkdir()
    words = {"<unk>": WORDS} | {f"w{number}": number for number in range(WORDS)}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
    }
    written(folder / "tokenizer/tokenizer.json", tokenizer)
    written(folder / "tokenizer/tokenizer_config.json", {})
    texts = folder / "tests/assets/c4_test"
    texts.mkdir(parents=True)
    rows = [" ".join(f"w{(7 * row + word) % WORDS}" for word in range(64)) for row in range(WORDS)]
    (texts / "data.json").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
