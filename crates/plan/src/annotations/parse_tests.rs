use std::collections::BTreeSet;

use crate::api::Duration;
use crate::api::validated::{Workload, WorkloadKind};
use crate::status::NoticeReason;
use serde_json::json;

use super::facts::WorkloadFacts;
use super::parse::{self, Request, parse};

fn workload(name: &str, annotations: &[(&str, &str)]) -> WorkloadFacts {
    let annotations = annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let key = ("shop".into(), Workload { kind: WorkloadKind::Deployment, name: name.into() });
    WorkloadFacts { key, uid: format!("uid-{name}"), annotations, owners: BTreeSet::new(), deleting: false }
}

fn notes(workload: &WorkloadFacts) -> Vec<(NoticeReason, String)> {
    parse(workload).problems.into_iter().map(|problem| (problem.reason, problem.note)).collect()
}

#[test]
fn annotations_become_the_spec_of_a_lease() {
    let parsed = parse(&workload(
        "billing",
        &[
            ("lease", "true"),
            ("quorum", "west"),
            ("granularity", "pod"),
            ("lease-duration", "10s"),
            ("renew-interval", "2s"),
            ("grace-period", "3s"),
        ],
    ));
    let Request::Lease(desired) = &parsed.request else { panic!("{parsed:?}") };
    assert_eq!((desired.name.as_str(), parsed.quorum.as_str(), &parsed.problems), ("billing", "west", &vec![]));
    let spec = serde_json::to_value(parse::spec(&desired.settings)).unwrap();
    for (field, wanted) in [
        ("quorumRef", json!({"name": "west"})),
        ("candidates", json!({"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "billing"}})),
        ("leaseDuration", json!("10s")),
        ("renewInterval", json!("2s")),
        ("gracePeriod", json!("3s")),
    ] {
        assert_eq!(spec[field], wanted, "{field}");
    }

    let parsed = parse(&workload("billing", &[("lease", "invoices")]));
    let Request::Lease(desired) = &parsed.request else { panic!("{parsed:?}") };
    let durations =
        [&desired.settings.lease_duration, &desired.settings.renew_interval, &desired.settings.grace_period];
    assert_eq!((desired.name.as_str(), parsed.quorum.as_str()), ("invoices", "default"));
    assert_eq!(durations.map(Duration::as_str), ["30s", "5s", "10s"], "the defaults of the API");

    for annotations in [&[][..], &[("lease", "false")], &[("lease-duration", "20s")]] {
        let parsed = parse(&workload("billing", annotations));
        assert_eq!((parsed.request, parsed.problems), (Request::None, vec![]), "{annotations:?}");
    }
}

#[test]
fn a_wrong_annotation_is_reported_with_its_value_and_the_nearest_right_one() {
    use NoticeReason::{InvalidAnnotation, UnknownAnnotation};
    let long = "a".repeat(70);
    for (name, annotations, reason, says) in [
        (
            "b",
            vec![("lease-duraton", "20s")],
            UnknownAnnotation,
            vec!["redislease.io/lease-duraton (value \"20s\") is unknown: use redislease.io/lease-duration"],
        ),
        (
            "b",
            vec![("topology", "zone")],
            UnknownAnnotation,
            vec!["redislease.io/topology (value \"zone\") is unknown in this version", "redislease.io/grace-period"],
        ),
        (
            "b",
            vec![("priority", "7")],
            UnknownAnnotation,
            vec!["redislease.io/priority (value \"7\") has no effect on a workload: set it on the pods"],
        ),
        (
            "b",
            vec![("priorty", "7")],
            UnknownAnnotation,
            vec!["(value \"7\") is unknown: use redislease.io/priority, and set it on the pods, in the pod template."],
        ),
        (
            "b",
            vec![("handover-to", "b-1")],
            UnknownAnnotation,
            vec!["redislease.io/handover-to (value \"b-1\") has no effect on a workload: set it on the RedisLease."],
        ),
        (
            "b",
            vec![("lease-duration", "30")],
            InvalidAnnotation,
            vec!["redislease.io/lease-duration is \"30\" and must be a duration", "use \"30s\""],
        ),
        ("b", vec![("lease-duration", "2h")], InvalidAnnotation, vec!["at most 1h", "use \"1h\""]),
        ("b", vec![("grace-period", "0s")], InvalidAnnotation, vec!["redislease.io/grace-period", "use \"10s\""]),
        (
            "b",
            vec![("lease-duration", "10s")],
            InvalidAnnotation,
            vec!["redislease.io/lease-duration is \"10s\" and must be at least 3 * renewInterval (5s)", "use \"26s\""],
        ),
        (
            "b",
            vec![("grace-period", "20s")],
            InvalidAnnotation,
            vec!["redislease.io/lease-duration is not set and must be at least", "use \"36s\""],
        ),
        (
            "b",
            vec![("granularity", "Clusters")],
            InvalidAnnotation,
            vec!["redislease.io/granularity is \"Clusters\" and must be \"pod\" or \"cluster\"", "use \"cluster\""],
        ),
        (
            "b",
            vec![("quorum", "West_1")],
            InvalidAnnotation,
            vec!["redislease.io/quorum is \"West_1\"", "use \"west-1\""],
        ),
        ("b", vec![("activations", "gate")], UnknownAnnotation, vec!["use redislease.io/activation"]),
        ("b", vec![("lease", "True")], InvalidAnnotation, vec!["redislease.io/lease is \"True\"", "use \"true\""]),
        ("b", vec![("lease", "My Lease")], InvalidAnnotation, vec!["use \"my-lease\""]),
        ("b", vec![("lease", "")], InvalidAnnotation, vec!["redislease.io/lease is \"\"", "use \"true\""]),
        (long.as_str(), vec![], InvalidAnnotation, vec!["longer than the 63 characters of a lease", "use \"aaa"]),
    ] {
        let mut all = vec![("lease", "true")];
        all.retain(|(name, _)| annotations.iter().all(|(other, _)| other != name));
        all.extend(&annotations);
        let workload = workload(name, &all);
        let notes = notes(&workload);
        let [(found, note)] = &notes[..] else { panic!("{annotations:?}: {notes:?}") };
        assert_eq!(*found, reason, "{note}");
        for part in says {
            assert!(note.contains(part), "{note} should contain {part}");
        }
        assert_eq!(parse(&workload).request, Request::Invalid, "{annotations:?}");
    }
    // The suggested duration is accepted.
    let corrected = workload("b", &[("lease", "true"), ("grace-period", "20s"), ("lease-duration", "36s")]);
    assert!(matches!(parse(&corrected).request, Request::Lease(_)));
    // Without redislease.io/lease, a word that may be meant to be it keeps what exists.
    assert_eq!(parse(&workload("b", &[("leese", "true")])).request, Request::Invalid);
    assert_eq!(parse(&workload("b", &[("topology", "zone")])).request, Request::None);
    assert_eq!(notes(&workload("b", &[("leese", "true"), ("quorums", "x")])).len(), 2, "one event for each");
}

#[test]
fn the_former_annotation_for_a_service_is_reported_with_what_replaces_it() {
    let routed = workload("b", &[("lease", "true"), ("active-service", "billing-active")]);
    let [(NoticeReason::UnknownAnnotation, note)] = &notes(&routed)[..] else { panic!("{:?}", notes(&routed)) };
    let says = "redislease.io/active-service (value \"billing-active\") has no effect in this version: remove it, and create a \
                Service with the selector lease.redislease.io/LEASE: active";
    assert!(note.contains(says), "{note}");
    assert_eq!(parse(&routed).request, Request::Invalid, "the lease stays as it is");
}

#[test]
fn the_ways_of_activation_are_a_list() {
    let parsed = |value: &str, more: &[(&str, &str)]| {
        let annotations = [&[("lease", "true"), ("activation", value)], more].concat();
        let workload = workload("b", &annotations);
        (parse(&workload).request, notes(&workload))
    };
    for (value, more, gate) in [
        ("label", &[][..], false),
        (" label ", &[], false),
        ("gate", &[], true),
        ("label , gate", &[], true),
        ("gate,gate", &[], true),
    ] {
        let (request, notes) = parsed(value, more);
        let Request::Lease(desired) = request else { panic!("{value:?}: {notes:?}") };
        let spec = serde_json::to_value(parse::spec(&desired.settings)).unwrap();
        assert_eq!(spec["activation"]["schedulingGate"] == true, gate, "{value:?}: {spec}");
        assert_eq!(spec["activation"].is_null(), !gate, "{value:?}: {spec}");
    }
    let words = "be a list of the words label, gate, scale and suspend, separated by commas";
    let service = "not contain service, because a Service with the selector lease.redislease.io/LEASE=active follows the \
                   holder without it";
    for (value, more, must, nearest) in [
        ("", &[][..], words, "label"),
        (" ", &[], words, "label"),
        (",", &[], words, "label"),
        ("gate,", &[], words, "gate"),
        ("gte", &[], words, "gate"),
        ("Gate", &[], words, "gate"),
        ("label;gate", &[], words, "label"),
        ("services", &[], words, "label"),
        ("anything", &[], words, "label"),
        ("service", &[], service, "label"),
        ("gate,service", &[], service, "gate"),
    ] {
        let (request, notes) = parsed(value, more);
        let [(NoticeReason::InvalidAnnotation, note)] = &notes[..] else { panic!("{value:?}: {notes:?}") };
        assert_eq!(request, Request::Invalid, "{value:?}");
        let start = format!("Annotation redislease.io/activation is {value:?} and must {must}: use {nearest:?}. ");
        assert!(note.starts_with(&start), "{value:?}: {note}");
        // The suggested value is accepted.
        assert_eq!(parsed(nearest, more).1, []);
    }
}

#[test]
fn a_cluster_holds_the_lease_of_a_workload_that_is_switched() {
    let parsed = |kind, annotations: &[(&str, &str)]| {
        let mut workload = workload("b", &[&[("lease", "true")], annotations].concat());
        workload.key.1.kind = kind;
        (parse(&workload).request, notes(&workload))
    };
    let (deployment, cron_job, job) = (WorkloadKind::Deployment, WorkloadKind::CronJob, WorkloadKind::Job);
    for (kind, annotations, wanted) in [
        (deployment, vec![("activation", "scale"), ("active-replicas", "3")], json!({"scale": {"replicas": 3}})),
        (
            WorkloadKind::StatefulSet,
            vec![("granularity", "cluster"), ("activation", "label, scale"), ("active-replicas", " 1 ")],
            json!({"scale": {"replicas": 1}}),
        ),
        (cron_job, vec![("activation", "suspend")], json!({"suspend": true})),
    ] {
        let (request, notes) = parsed(kind, &annotations);
        let Request::Lease(desired) = request else { panic!("{annotations:?}: {notes:?}") };
        let spec = parse::spec(&desired.settings);
        assert_eq!(spec.granularity, crate::api::lease::Granularity::Cluster);
        assert_eq!(spec.activation, Some(serde_json::from_value(wanted).unwrap()), "{annotations:?}");
    }
    for (kind, annotations, says) in [
        (
            deployment,
            vec![("activation", "scale")],
            "redislease.io/active-replicas is not set and must be the number of replicas",
        ),
        (deployment, vec![("activation", "scale"), ("active-replicas", "0")], "from 1 to 10000: use \"1\""),
        (
            deployment,
            vec![("active-replicas", "3")],
            "redislease.io/activation is not set and must contain scale, because redislease.io/active-replicas is set",
        ),
        (
            deployment,
            vec![("granularity", "cluster")],
            "exactly one of scale and suspend with redislease.io/granularity cluster: use \"scale\"",
        ),
        (
            deployment,
            vec![("granularity", "pod"), ("activation", "scale")],
            "redislease.io/granularity is \"pod\" and must be \"cluster\"",
        ),
        (deployment, vec![("activation", "suspend")], "not contain suspend, which needs a CronJob: use \"scale\""),
        (
            cron_job,
            vec![("activation", "scale")],
            "not contain scale, which needs a Deployment or StatefulSet: use \"suspend\"",
        ),
        (cron_job, vec![("activation", "scale,suspend")], "exactly one of scale and suspend"),
        (deployment, vec![("activation", "gate,scale")], "contain only label, scale and suspend"),
        (job, vec![("activation", "suspend")], "not contain scale or suspend, which need a Deployment"),
        (
            job,
            vec![("activation", "scale"), ("granularity", "pod")],
            "which need a Deployment, a StatefulSet or a CronJob",
        ),
        (job, vec![("activation", "scale"), ("granularity", "cluster")], "or a CronJob: use \"gate\""),
        (job, vec![("granularity", "cluster")], "be \"pod\": only a Deployment, a StatefulSet or a CronJob"),
    ] {
        let (request, notes) = parsed(kind, &annotations);
        let [(NoticeReason::InvalidAnnotation, note)] = &notes[..] else { panic!("{annotations:?}: {notes:?}") };
        assert_eq!(request, Request::Invalid, "{annotations:?}");
        assert!(note.contains(says), "{annotations:?}: {note}");
    }
}
