"""The explorer: pages that show conversations in a browser. Extra: `server`."""
