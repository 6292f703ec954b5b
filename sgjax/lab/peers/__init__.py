"""Other engines beside ours: same weights, same token ids, greedy, each in a Python of its own."""
