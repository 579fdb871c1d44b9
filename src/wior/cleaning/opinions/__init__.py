"""What different models say of the right label of every row. A row never teaches a model that judges it."""
