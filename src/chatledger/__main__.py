"""`python -m chatledger` and the script `chatledger`."""

from chatledger.infra.entrypoints.cli import main

if __name__ == "__main__":
    main()
