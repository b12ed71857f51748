"""``python -m gatekeeper``: the command line where its script is not on the PATH."""

from gatekeeper.cli import main

if __name__ == "__main__":
    main()
