"""A profile that has become wrong while its plan runs: judged by all ranks, measured again where it has."""
