"""The check at the start of the server, with kernels that have mistakes, on real weights."""
