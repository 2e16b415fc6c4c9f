"""GPUs as this package needs them: identity, clock, energy; one backend per file.

``device.choose`` is imported by those who open a device: it brings every backend.
"""
