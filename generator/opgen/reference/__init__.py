"""The reference of a project: a page for each op and method, and the support matrix, in Markdown for MyST."""
