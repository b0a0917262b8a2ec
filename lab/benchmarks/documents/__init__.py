"""An evaluation of answers from documents."""
