"""Commands that run plans on emulated GPUs."""
