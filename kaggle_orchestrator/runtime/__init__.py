"""What runs inside a session: the supervisor, which starts first, and the library that training code imports.

Travels inside every pushed kernel, so it imports ``protocol`` and nothing else of ours.
"""
