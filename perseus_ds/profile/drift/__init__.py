"""Whether a profile has become wrong while its plan runs: found, judged, and mended where it has."""
