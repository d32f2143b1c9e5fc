"""What experiments and plans share: one loop that plays a policy, parallel processes, statistics, sealed files."""
