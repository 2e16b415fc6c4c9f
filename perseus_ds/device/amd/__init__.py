"""AMD GPUs, through AMD's own library."""
