"""The guard as a service of the node: who may connect, which GPUs they may take."""
