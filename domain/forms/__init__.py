"""Forms of messages: the shapes in which the APIs and frameworks have them."""
