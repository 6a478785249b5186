"""MCP: conversations as tools, resources and prompts of an assistant, over stdio and at `/mcp`. Extra: `mcp`."""
