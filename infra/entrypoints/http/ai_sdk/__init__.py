"""The AI SDK: `UIMessage[]` in and out, and live streams as `useChat` resumes them, at `/api/chat`."""
