"""What a run directory contains: its parts, which plan was chosen, the figures, and their words."""

from perseus_ds.report.contents.reading import Contents, read_contents

__all__ = ["Contents", "read_contents"]
