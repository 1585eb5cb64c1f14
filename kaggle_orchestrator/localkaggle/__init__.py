"""The local Kaggle: a server on loopback that speaks Kaggle's kernels API and runs sessions as real processes.

Everyone else meets it over HTTP, with the client that Kaggle itself is met with. Nothing here touches a real account.
"""
