"""CUDA behind one seam: events that fall into no capture, marks of a stream, and their times on the host."""
