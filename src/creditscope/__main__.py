"""`python -m creditscope`."""

from creditscope.cli import main

main()
