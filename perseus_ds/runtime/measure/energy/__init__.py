"""What a rank reads of its GPU beside the training: energy and temperature."""
