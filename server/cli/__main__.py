"""`python -m server.cli`: the `rejoinder` command."""

from server.cli.main import main

main()
