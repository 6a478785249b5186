"""Items: values under a namespace and a key, with history. `ItemStore` and its asynchronous twin."""
