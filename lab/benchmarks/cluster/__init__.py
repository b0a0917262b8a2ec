"""What a cluster of replicas does under load, when it scales, is upgraded or loses a replica."""
