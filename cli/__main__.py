"""`python -m cli`: the `rejoinder` command."""

from cli.main import main

main()
