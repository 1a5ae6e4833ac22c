"""`radixlab` and `python -m radixlab`: the command line, or one sentence on what it needs."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from radixlab.cli import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit("The radixlab command needs typer and rich: pip install 'radixlab[cli]'")
    app()


if __name__ == "__main__":
    main()
