"""What `check` looks at, a file each."""
