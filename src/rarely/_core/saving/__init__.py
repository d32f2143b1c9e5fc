"""Files that hold a policy: the archive, its fields, and how a file is written."""
