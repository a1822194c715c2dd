"""Runs the program `convoy`, for `python -m convoy`."""

from .program import main

main()
