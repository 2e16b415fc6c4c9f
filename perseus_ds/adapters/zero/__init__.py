"""DeepSpeed's engine without a pipeline: ZeRO-0 to 3, data and tensor parallel."""
