"""Commands that play plans on emulated GPUs."""
