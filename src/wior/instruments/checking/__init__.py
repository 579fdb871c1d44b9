"""What `check` looks at, one file for each subject."""
