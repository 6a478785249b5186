"""`python -m chatledger` and the script `chatledger`."""

import sys

import chatledger


def main() -> None:
    """Run the command line, which is imported unless only the version is asked for."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"chatledger {chatledger.__version__}\n")
        return
    from chatledger.infra.entrypoints.cli import main as run

    run()


if __name__ == "__main__":
    main()
