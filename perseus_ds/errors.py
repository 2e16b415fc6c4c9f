"""The errors a user can meet, and nothing else.

A message states what, where, got and expected; ``hint`` is the one thing to do. Vendor errors are translated
once, at the border, and raised ``from`` the original.
"""

from __future__ import annotations


class PerseusError(Exception):
    """A refusal with a reason, in one line, and the one thing to do about it."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} ({self.hint})"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by message and hint, so that errors cross process borders whole."""
        return (_rebuild, (type(self), self.message, self.hint))


def _rebuild(kind: type[PerseusError], message: str, hint: str | None) -> PerseusError:
    return kind(message, hint=hint)


class ConfigError(PerseusError):
    """A key, a value or a combination in the configuration that cannot be meant."""


class ScheduleError(PerseusError):
    """A pipeline schedule that cannot run, or that disagrees with another description of it."""


class ProfileError(PerseusError):
    """A profile that cannot be read or used."""


class IncompleteProfileError(ProfileError):
    """A profile without a measurement that is needed."""


class UnmeasurableError(IncompleteProfileError):
    """A measurement that no longer window would show."""


class SolverError(PerseusError):
    """A time-cost problem that cannot be solved as stated."""


class InfeasibleError(SolverError):
    """No choice of options meets the wanted time."""


class PlanError(PerseusError):
    """A plan that cannot be used."""


class SlowChangeError(PlanError):
    """A change of clock lasts longer than an iteration: only plans of one clock for each GPU can be run."""


class DeviceError(PerseusError):
    """A GPU that did not do what it was asked."""


class DeviceUnavailableError(DeviceError):
    """No such device, or no driver for it."""


class DeviceHeldError(DeviceUnavailableError):
    """Another guard, which lives, holds the device's clock."""


class DeviceAbsentError(DeviceUnavailableError):
    """The driver answers and has no such device: it was taken out, or is not shown to this process."""


class DevicePermissionError(DeviceError):
    """The device is there; the right to set its clocks is not."""


class DeviceUnsupportedError(DeviceError):
    """The device or its driver cannot do this."""


class ValueRefusedError(DeviceUnsupportedError):
    """The driver takes this call, but not this value: it may take others."""


class DeviceLostError(DeviceError):
    """The device stopped answering."""


class EngineError(PerseusError):
    """The training engine cannot be attached to."""


class SilentRankError(EngineError):
    """Another rank that did not answer in time; it may answer later."""


def as_perseus_error(error: Exception) -> PerseusError:
    """Return an error of ours as it is, and any other as one: a line to read, and where to take it."""
    if isinstance(error, PerseusError):
        return error
    return PerseusError(f"an unexpected {type(error).__name__}: {error}", hint="please report it")
