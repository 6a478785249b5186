"""What tests share: none of it is a test."""
