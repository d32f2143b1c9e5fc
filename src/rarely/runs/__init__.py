"""What measured results rest on: intervals over runs, machines and versions, files, processes and Ray."""
