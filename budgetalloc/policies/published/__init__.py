"""Published methods: a folder for each section of METHODS.md, a module for each method or pair of
methods."""
