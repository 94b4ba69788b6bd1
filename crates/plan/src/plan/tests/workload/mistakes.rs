// Annotations of a workload that are meant to name a lease, and name none: the operator's test and that of the chart's policy read them.
[
    ("redislease.io/lease", "Billing"),
    ("redislease.io/lease", "yes"),
    ("redislease.io/lease", "1"),
    ("redislease.io/lease", "a-name-that-is-longer-than-the-63-characters-of-the-name-of-a-lease"),
    ("redislease.io/leese", "true"),
    ("redislease.io/activated-by", "Billing"),
    ("redislease.io/activated-by", "billing\n"),
    ("redislease.io/activated-by", "true"),
    ("redislease.io/activated-by", "0"),
    ("redislease.io/activated-by", ""),
    ("redislease.io/activatedBy", "billing"),
]
