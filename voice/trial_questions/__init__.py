"""Recorded questions for `voice/trial.py`: Opus, 16 kHz, cut at the first and the last sample of speech. Made with
Kokoro's voices af_bella, bm_george, am_michael and bf_emma."""
