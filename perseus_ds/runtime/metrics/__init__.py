"""What a rank leaves for monitoring, beside the training: a file, an endpoint."""
