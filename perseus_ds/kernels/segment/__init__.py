"""A launch sequence cut into runs of one pair of clocks, as long as changes take and cost something."""
