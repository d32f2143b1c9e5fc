"""What a policy is given: contexts, arms, rewards, and how they are read and scaled."""
