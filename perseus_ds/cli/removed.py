"""Commands and options that earlier releases had, each with what to do instead."""

from __future__ import annotations

from collections.abc import Sequence

from perseus_ds.errors import ConfigError

REMOVED_OPTIONS = {
    **{
        f"plan --{key.replace('_', '-')}": f"write `--set {key}=VALUE`"
        for key in (
            *("chunks", "group", "waits", "split", "switch_latency_ms", "reserve_pct", "timelines"),
            *("changes_per_s", "node_changes_per_s", "gpus_per_node"),
        )
    },
    "plan --verify": "`perseus-ds verify PLAN` checks every plan of the file",
    "plan --loads": "a job's profile knows how loads vary; `--set reserve_pct=PCT` keeps a reserve",
    "plan --wait-power-w": "write a waiting GPU's watts by clock into profile.json, under `blocking_w`",
    "plan --feedback": "plans no longer correct themselves; `--set reserve_pct=PCT` keeps a reserve",
    "plan --dwell-ms": "`--set changes_per_s=N` bounds how often a clock changes, and saves more",
    "plan --max-swing": "plans are not chosen by how their power changes; `show --power` prints `swing_w`",
    "hook": "`doctor` states whether the start-up hook is in place; `doctor --json` has it under `hook`",
    "convert": "`show PROFILE.json --format csv` prints the CSV, `show PROFILE.csv --format json` ours",
    **{
        f"simulate --{key.replace('_', '-')}": f"write `{key}: ...` into a file, and give it by `--scenario`"
        for key in (
            *("gpus_per_node", "noise_pct", "seed", "work", "loads"),
            *("call_ms", "settle_ms", "queue_ms", "stall_ms"),
        )
    },
    "simulate --unanswered": "write `answered: false` into a file, and give it by `--scenario`",
    "simulate --clocks": "edit the clocks in PLAN, or plan with other keys of the block",
    "kernels --picture": "`kernels show --json` has every figure",
    "kernels --noise": "the simulated GPU is measured with 0.5 % of noise",
    "kernels --seed": "the simulated GPU has one seed",
    "kernels --dwell-ms": "`--latency-ms` is the least time between two changes as well",
    "simulate -o": "`simulate --json` has every figure",
    "simulate --output": "`simulate --json` has every figure",
    "show --beside": "write `--straggler S`",
    "show --max-swing": "choose rows of `show --power` by their `swing_w`",
    "notify --per": "a power cap is for the whole job: multiply watts of one pipeline by their number",
    "notify --node": "give each job a `--power-cap` of its own",
    "notify --no-power-cap": "`--clear` ends all notices",
    "notify --for": "name its end by `--until`",
    "notify --ramp": "lower the cap step by step",
    "notify --reason": "leave it out: the journal has the cap itself",
    "doctor --first-hour": "`doctor` makes three quick checks; `scripts/bench/real_gpu` has the others",
    "doctor --output": "redirect its output",
    "doctor -o": "redirect its output",
}
"""By command and option, or by command alone where all of it was removed; the remedy ends the refusal."""


def refuse_removed(command: str, words: Sequence[str]) -> None:
    """Refuse the first word of a call that was removed; what stands behind ``--`` is not ours.

    Raises:
        ConfigError: naming it, with the remedy.
    """
    own = words[: words.index("--")] if "--" in words else words
    for name in (command, *(f"{command} {word.partition('=')[0]}" for word in own)):
        if name in REMOVED_OPTIONS:
            raise ConfigError(f"`{name}` was removed", hint=REMOVED_OPTIONS[name])
