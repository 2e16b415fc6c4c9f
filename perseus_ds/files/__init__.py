"""Files that others may have written: read within bounds, believed by who could have written them."""
