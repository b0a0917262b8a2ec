"""Data: style vectors of Kokoro v1.0 voices (by hexgrad, Apache-2.0), [510, 1, 256] little-endian float16 each, xz."""
