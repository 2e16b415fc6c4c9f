"""The optimiser on its way along the frontier: frames, as a GIF and on a canvas of the page."""
