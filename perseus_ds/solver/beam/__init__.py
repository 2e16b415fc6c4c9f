"""Real options in the order of the relaxed plan: many partial plans side by side, priced by its flow."""
