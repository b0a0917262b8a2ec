"""Whether a real model makes all calls of a request that needs several."""
