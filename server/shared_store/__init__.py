"""What all replicas of a service share, wherever it is kept."""
