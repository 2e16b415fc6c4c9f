"""What the papers print, and what their public artifact holds, each with its source."""

PERSEUS_TABLE_6 = {12: 15.20, 24: 14.19, 48: 13.62, 96: 13.32}
"""Intrinsic saving in percent, GPT-3 175B on A100 SXM, 8 stages (arXiv 2312.06902, table 6)."""

PERSEUS_BESIDE_1_2 = {96: 27.0}
"""Saving of one that is no straggler beside one of 1.2, 1 024 GPUs (artifact, evaluation of figure 7)."""

ENVPIPE_BESIDE_1_2 = {96: 12.0}
"""The same for EnvPipe."""

GPUS = {96: 1024, 48: 2048, 24: 4096, 12: 8192}
"""Strong scaling: microbatches of a pipeline to GPUs (8 stages x 8 tensor-parallel x 16 to 128 pipelines)."""
