"""GPUs: identity, clocks, energy; one file per vendor. `guard.open.choose` opens one for a job."""
