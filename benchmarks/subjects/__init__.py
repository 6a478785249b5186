"""One module per subject; each offers a function that takes a `World` and yields rows."""
