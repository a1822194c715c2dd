"""python -m convoy: the program."""

from .program import main

main()
