"""What a rank leaves for monitoring, beside the training: files, an endpoint, OpenTelemetry."""
