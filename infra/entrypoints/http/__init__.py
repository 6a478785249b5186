"""The ledger over HTTP: a native API, and the contracts that existing clients speak. Extra: `server`."""
