"""Messages of other libraries, which are imported when they are used."""
