"""Reads a checkpoint: tensors, architecture, rotary embedding, tokenizer, chat template."""
