"""What the operator sees and does while the server runs."""
