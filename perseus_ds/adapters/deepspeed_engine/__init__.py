"""What every engine of DeepSpeed has, with a pipeline or without: its configuration, release, monitors."""
