"""Keys of the block that earlier releases had, each with what to do instead."""

REMOVED_KEYS = {
    "profile.target_error_pct": "five clocks at fixed places are measured: delete the key;"
    " `profile.max_clocks` takes fewer",
    "profile.budget_s": "five clocks at fixed places are measured: delete the key; `profile.max_clocks` and"
    " `profile.min_window_s` shorten the sweep",
    "device: zeusd": "run `perseus-ds guardd` on the node, which does the same, and state `guardd`",
    "report": "prices are options of the report: delete the section, and run `perseus-ds report RUN_DIR"
    " --price-per-kwh P --gco2-per-kwh G --pue X`",
    "profile.drift": "profiles are not measured again while a plan runs: delete the key; audits report what"
    " no longer fits, and the job profiles anew where `profile.json` is deleted",
    "objective.feedback": "plans no longer correct themselves: delete the key; `objective.reserve_pct` keeps"
    " a reserve for durations that vary",
    "power": "delete it; `perseus-ds notify RUN_DIR --power-cap W` caps a running job's mean power, and"
    " `policy: power_cap` one pipeline's from the start",
    "straggler.peers": "delete it; a slow GPU within a replica makes the replica a straggler beside others",
    "metrics.every_s": "delete it: numbers are written every 15 seconds",
    "metrics.otlp": "delete it: a collector of OpenTelemetry scrapes `metrics.port` as Prometheus does",
}
"""By full name below ``perseus``, or by name and value; the remedy ends the refusal."""
