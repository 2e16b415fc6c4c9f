"""The HTML page: its parts, its looks, the timelines in it."""
