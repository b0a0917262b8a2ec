"""Times of spoken words and visemes: how exact they are, and what they cost."""
