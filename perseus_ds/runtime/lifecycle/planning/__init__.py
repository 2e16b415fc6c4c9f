"""Plans for this job: asked for, made beside training, found again, one for each batch size."""
