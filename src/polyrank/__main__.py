"""`python -m polyrank` is `polyrank`."""

from polyrank.cli.main import main

if __name__ == "__main__":
    main()
