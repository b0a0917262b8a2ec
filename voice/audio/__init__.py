"""Audio signal processing: codecs, resampling, voice detection, echo, loudness."""
