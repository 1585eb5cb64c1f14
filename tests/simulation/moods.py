"""Settings of the local Kaggle's knobs under which a chain must end the same."""

MOODS: dict[str, tuple[object, ...]] = {
    "output_after_error": ("keep",),
    "output_after_kill": ("keep",),
    "output_after_cancel": ("keep",),
    "mount_layout": ("flat", "owner"),
    "self_mount": ("mount",),
    "first_mount": ("empty",),
    "quick_save": ("mask",),
    "container_cancel": ("refused",),
    "queued_status": ("omitted",),
    "sigterm_before_kill_s": (30,),
    "queue_s": (900, 7200),
    "stale_status_s": (240,),
    "denied_s": (60,),
    "status_lag_s": (90, 7200),
    "output_lag_s": (300,),
    "cancel_save_s": (120,),
    "log_drop_s": (60,),
    "calls_per_minute": (10,),
    "retry_after": ("none", "date"),
    "error_body": ("nested",),
    "gpu_sessions": (1,),
    "cpu_sessions": (1,),
    "gpu_quota_hours": (1.5,),
    "max_session_s": (1500,),
    "working_files": (40,),
    "overflow": ("zip",),
    "url_ttl_s": (1,),
    "log_bytes": (8192,),
    "seed": (1,),
}
"""Values besides the default, of knobs that a chain on a good account can meet."""
NOT_MOODS = {
    "dataset_lag_s": "the chain has no dataset",
    "latency_ms": "real milliseconds; the clock here is not real",
    "verified": "without it the account is refused or gets no GPU",
    "working_bytes": "a training that writes too much is its author's to change",
    "memory_bytes": "the same",
    "clock_factor": "the clock here doesn't run",
    "box": "there are no processes here",
}
"""The other knobs, and why they aren't moods."""
