"""What different models say of the right label of every row; the label of a row never teaches a model that judges it."""
