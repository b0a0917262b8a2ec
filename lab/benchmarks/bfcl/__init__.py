"""Function calling with BFCL's questions (Berkeley Function Calling Leaderboard; Patil et al., ICML 2025)."""
