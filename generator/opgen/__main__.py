"""`python -m opgen`: the command line."""

from opgen.cli import main

if __name__ == "__main__":
    main()
