"""OpenAI's Conversations API, at `/v1/conversations`."""
