"""Numbers that stand for what is no number: pictures, texts."""
