"""Between the form in which messages are stored, the UIMessage, and the forms that models take."""
