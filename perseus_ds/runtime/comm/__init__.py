"""How ranks agree: rendezvous, control channel, status of every iteration."""
