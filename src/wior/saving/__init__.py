"""What a run leaves on the disk: checkpoints, folders that appear whole, locks."""
