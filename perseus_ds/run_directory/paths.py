"""Where everything of one job lies."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from perseus_ds.files import may_write, who_else

_SHARED = {
    True: "files that others put there are not believed",
    False: "a group's changes are believed, everyone's are not; chmod go-w keeps it yours",
}


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The files of the contract, under one path."""

    path: Path

    @property
    def writers(self) -> frozenset[int]:
        """Users whose files here are believed: ourselves, the directory's owner, root."""
        try:
            return may_write(self.path) | {os.geteuid()}
        except OSError:
            return frozenset({0, os.geteuid()})

    def shared_with(self) -> list[str]:
        """Describe of the directory and of what is believed in it who else may write to it; empty: nobody.

        It is no reason to stop: projects share directories, and a umask of 002 gives every file to the group.
        What others put here is not believed; what their group may change in our own files is.
        """
        named = [(path, who_else(path)) for path in (self.path, self.profile, self.plan)]
        return [f"{path} {who}: {_SHARED[path == self.path]}" for path, who in named if who is not None]

    @property
    def profile(self) -> Path:
        """What was measured (``perseus_ds.profile``)."""
        return self.path / "profile.json"

    @property
    def plan(self) -> Path:
        """The frontier of plans (``perseus_ds.plan``)."""
        return self.path / "plan.json"

    def plan_of(self, microbatches: int) -> Path:
        """Plans for batches of another size than those of ``plan``."""
        return self.path / f"plan.m{microbatches}.json"

    @property
    def request(self) -> Path:
        """The request that plans are made from (``perseus_ds.plan``)."""
        return self.path / "plan_request.json"

    @property
    def kernels(self) -> Path:
        """What the instructions are made of, a file for each rank that traced (``perseus_ds.kernels``)."""
        return self.path / "kernels"

    def kernels_of(self, rank: int) -> Path:
        """What one rank traced."""
        return self.kernels / f"rank{rank}.json"

    @property
    def given_timelines(self) -> Path:
        """What the planner was given of the timelines of kernels (``perseus_ds.kernels``)."""
        return self.path / "kernel_timelines.json"

    @property
    def summary(self) -> Path:
        """Baseline against plan, measured."""
        return self.path / "summary.json"

    @property
    def events(self) -> Path:
        """What was chosen, when and why; one JSON object a line."""
        return self.path / "events.jsonl"

    @property
    def timelines(self) -> Path:
        """One iteration before and after, instruction by instruction."""
        return self.path / "timelines.json"

    @property
    def places(self) -> Path:
        """Where every rank is: pipeline, host and GPU."""
        return self.path / "places.json"

    @property
    def notices(self) -> Path:
        """What was announced from outside, a file per slow pipeline (``perseus_ds.straggler``)."""
        return self.path / "notices"

    @property
    def metrics(self) -> Path:
        """What every rank leaves for monitoring, where it is asked for."""
        return self.path / "metrics"

    @property
    def ranks(self) -> Path:
        """Measurements of every rank, a file each."""
        return self.path / "ranks"

    def rank(self, rank: int) -> Path:
        """One rank's measurements."""
        return self.ranks / f"rank_{rank:05d}.json"
