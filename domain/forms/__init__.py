"""Forms of messages: reading a message in the form that it came in, and translating a whole chain into another form."""
