"""The rooms that know a training framework; none imports another."""
