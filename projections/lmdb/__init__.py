"""LMDB: environments, tables, keys, checksums of rows, and the pages of its files."""
