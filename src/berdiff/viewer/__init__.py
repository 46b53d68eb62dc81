"""The viewer: a result as one page for the browser, in a file of its own or from the server."""
