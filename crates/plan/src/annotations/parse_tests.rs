use crate::api::Duration;
use crate::api::validated::WorkloadKind::{self, CronJob, Deployment, Job, StatefulSet};
use crate::samples::annotated as workload;
use crate::status::NoticeReason::{self, InvalidAnnotation, UnknownAnnotation};
use serde_json::json;

use super::facts::WorkloadFacts;
use super::parse::{Request, parse};

fn notes(workload: &WorkloadFacts) -> Vec<(NoticeReason, String)> {
    parse(workload).problems.into_iter().map(|problem| (problem.reason, problem.note)).collect()
}

/// The only problem of a workload whose lease stays as it is because of it.
fn only_problem(workload: &WorkloadFacts) -> (NoticeReason, String) {
    let notes = notes(workload);
    let [problem] = &notes[..] else { panic!("{workload:?}: {notes:?}") };
    assert_eq!(parse(workload).request, Request::Invalid, "{problem:?}");
    problem.clone()
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
    let spec = serde_json::to_value(&desired.spec).unwrap();
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
    let durations = [&desired.spec.lease_duration, &desired.spec.renew_interval, &desired.spec.grace_period];
    assert_eq!((desired.name.as_str(), parsed.quorum.as_str()), ("invoices", "default"));
    assert_eq!(durations.map(Duration::as_str), ["30s", "5s", "10s"], "the defaults of the API");

    for annotations in [&[][..], &[("lease", "false"), ("lease-duration", "20s")], &[("activated-by", "orders")]] {
        let parsed = parse(&workload("billing", annotations));
        assert_eq!((parsed.request, parsed.problems), (Request::None, vec![]), "{annotations:?}");
    }
}

/// An annotation, its value, and what is reported about it.
type Wrong = (&'static str, &'static str, &'static [&'static str]);

const UNKNOWN: [Wrong; 6] = [
    ("lease-duraton", "20s", &["lease-duraton (value \"20s\") is unknown: use redislease.io/lease-duration"]),
    ("topology", "zone", &["topology (value \"zone\") is unknown in this version", "redislease.io/grace-period"]),
    ("priority", "7", &["priority (value \"7\") has no effect on a workload: set it on the pods"]),
    ("priorty", "7", &["is unknown: use redislease.io/priority, and set it on the pods, in the pod template."]),
    ("handover-to", "b-1", &["handover-to (value \"b-1\") has no effect on a workload: set it on the RedisLease."]),
    ("activations", "gate", &["use redislease.io/activation"]),
];

const INVALID: [Wrong; 14] = [
    ("lease-duration", "30", &["lease-duration is \"30\" and must be a duration", "use \"30s\""]),
    ("lease-duration", "2h", &["at most 1h", "use \"1h\""]),
    ("grace-period", "0s", &["redislease.io/grace-period", "use \"10s\""]),
    ("lease-duration", "10s", &["is \"10s\" and must be at least 3 * renewInterval (5s)", "use \"26s\""]),
    ("grace-period", "20s", &["redislease.io/lease-duration is not set and must be at least", "use \"36s\""]),
    ("granularity", "Clusters", &["is \"Clusters\" and must be \"pod\" or \"cluster\"", "use \"cluster\""]),
    ("quorum", "West_1", &["quorum is \"West_1\"", "use \"west-1\""]),
    ("activated-by", "Billing", &["activated-by is \"Billing\"", "use \"billing\""]),
    ("lease", "True", &["lease is \"True\"", "use \"true\""]),
    ("lease", "yes", &["lease is \"yes\"", "use \"true\""]),
    ("lease", " No", &["use \"false\""]),
    ("lease", "off", &["lease is \"off\"", "use \"false\""]),
    ("lease", "My Lease", &["use \"my-lease\""]),
    ("lease", "", &["lease is \"\"", "use \"true\""]),
];

#[test]
fn a_wrong_annotation_is_reported_with_its_value_and_the_nearest_right_one() {
    let unknown = UNKNOWN.map(|wrong| (UnknownAnnotation, wrong));
    for (reason, (name, value, says)) in unknown.into_iter().chain(INVALID.map(|wrong| (InvalidAnnotation, wrong))) {
        let annotations: &[_] = if name == "lease" { &[(name, value)] } else { &[("lease", "true"), (name, value)] };
        let (found, note) = only_problem(&workload("b", annotations));
        // A long grace period is the fault of the lease duration.
        let at_fault = if name == "grace-period" && value == "20s" { "lease-duration" } else { name };
        let start = format!("Annotation redislease.io/{at_fault} ");
        assert!(found == reason && note.starts_with(&start), "{found:?}: {note}");
        for part in says {
            assert!(note.contains(part), "{note} should contain {part}");
        }
    }
    let (found, note) = only_problem(&workload(&"a".repeat(70), &[("lease", "true")]));
    assert_eq!(found, InvalidAnnotation, "{note}");
    assert!(note.contains("longer than the 63 characters of a lease") && note.contains("use \"aaa"), "{note}");
    let (_, note) = only_problem(&workload("b", &[("lease", "true"), ("activated-by", "orders")]));
    let says = "Annotations redislease.io/lease and redislease.io/activated-by name two leases, b and orders, and no term of \
                them begins: remove one of the annotations. The operator does not";
    assert!(note.starts_with(says), "{note}");
    // Without redislease.io/lease, a word that may be meant to name the lease keeps what exists.
    for unclear in [("leese", "true"), ("activated_by", "billing"), ("activated-by", "billing ")] {
        assert_eq!(parse(&workload("b", &[unclear])).request, Request::Invalid, "{unclear:?}");
    }
    assert_eq!(parse(&workload("b", &[("topology", "zone")])).request, Request::None);
    assert_eq!(notes(&workload("b", &[("leese", "true"), ("quorums", "x")])).len(), 2, "one event for each");
}

#[test]
fn the_suggested_lease_duration_is_the_shortest_one_that_is_accepted() {
    for (renew, grace) in [1, 2, 5, 40].into_iter().flat_map(|renew| (1..300).map(move |grace| (renew, grace))) {
        let (renew, grace) = (format!("{renew}s"), format!("{grace}s"));
        let with = |duration: &str| {
            let annotations =
                [("lease", "true"), ("renew-interval", &renew), ("grace-period", &grace), ("lease-duration", duration)];
            workload("b", &annotations)
        };
        let (_, note) = only_problem(&with("1s"));
        let suggested = note.split("use \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let accepts = |duration: &str| matches!(parse(&with(duration)).request, Request::Lease(_));
        assert!(accepts(suggested), "{note}");
        let shorter = Duration::new(suggested).parse().unwrap().saturating_sub(core::time::Duration::from_secs(1));
        assert!(!accepts(Duration::from(shorter).as_str()), "{note}");
    }
}

/// A suggestion that is wrong does harm: whoever follows it scales a workload, or makes the next mistake.
#[test]
fn nothing_is_suggested_if_no_valid_value_is_similar() {
    for value in ["true", "True", "false", "Off", "", "___"] {
        let (_, note) = only_problem(&workload("b", &[("activated-by", value)]));
        let must =
            "and must be the name of a RedisLease, of at most 63 characters, and not true or false. The operator";
        assert!(note.contains(must), "{value:?}: {note}");
    }
    for (value, instead) in [
        ("3.0", Some("3")),
        ("3.9", Some("3")),
        ("0", Some("1")),
        ("-5", Some("1")),
        ("10001", Some("10000")),
        ("20000", Some("10000")),
        ("99999999999999999999", Some("10000")),
        ("1e3", None),
        ("three", None),
        ("inf", None),
        ("NaN", None),
        ("-", None),
        ("", None),
    ] {
        let (_, note) =
            only_problem(&workload("b", &[("lease", "true"), ("activation", "scale"), ("active-replicas", value)]));
        let advice = instead.map(|instead| format!(": use {instead:?}")).unwrap_or_default();
        assert!(note.contains(&format!("a whole number from 1 to 10000{advice}. The operator")), "{value:?}: {note}");
    }
    // No duration is long enough.
    let (_, note) = only_problem(&workload("b", &[("lease", "true"), ("renew-interval", "1h")]));
    assert!(!note.contains("use "), "{note}");
}

#[test]
fn annotations_without_effect_are_reported_and_their_values_are_not() {
    for (annotations, says) in [
        (
            &[("activation", "scale"), ("active-replicas", "0"), ("lease-duration", "20s")][..],
            "Without redislease.io/lease, these annotations have no effect: redislease.io/activation, \
             redislease.io/active-replicas, redislease.io/lease-duration. Set redislease.io/lease to \"true\", or remove them.",
        ),
        (
            &[("quorum", "west")],
            "Without redislease.io/lease, these annotations have no effect: redislease.io/quorum. Set redislease.io/lease to \
             \"true\", or remove them.",
        ),
        (
            &[("activated-by", "orders"), ("lease", "false"), ("active-replicas", "7")],
            "With redislease.io/activated-by, RedisLease orders decides, and these annotations have no effect: \
             redislease.io/active-replicas. Remove them.",
        ),
    ] {
        let workload = workload("b", annotations);
        let notes = notes(&workload);
        let [(UnknownAnnotation, note)] = &notes[..] else { panic!("{annotations:?}: {notes:?}") };
        assert_eq!((note.as_str(), parse(&workload).request), (says, Request::None));
    }
    for kind in [CronJob, Job] {
        let (reason, note) = only_problem(&switched(kind, &[("active-replicas", "2")]));
        assert_eq!(reason, UnknownAnnotation);
        let says = "redislease.io/active-replicas (value \"2\") has no effect on this kind of workload: remove it. The operator";
        assert!(note.contains(says), "{note}");
    }
    let (_, note) = only_problem(&switched(CronJob, &[("activation", "suspend"), ("active-replicas", "2")]));
    assert!(note.contains("(value \"2\") has no effect on this kind of workload: remove it"), "{note}");
}

#[test]
fn the_ways_of_activation_are_a_list() {
    let parsed = |value: &str| {
        let workload = workload("b", &[("lease", "true"), ("activation", value)]);
        (parse(&workload).request, notes(&workload))
    };
    for (value, gate) in
        [("label", false), (" label ", false), ("gate", true), ("label , gate", true), ("gate,gate", true)]
    {
        let (request, notes) = parsed(value);
        let Request::Lease(desired) = request else { panic!("{value:?}: {notes:?}") };
        let spec = serde_json::to_value(&desired.spec).unwrap();
        assert_eq!(spec["activation"]["schedulingGate"] == true, gate, "{value:?}: {spec}");
        assert_eq!(spec["activation"].is_null(), !gate, "{value:?}: {spec}");
    }
    let words = "be a list of the words label, gate, scale and suspend, separated by commas";
    for (value, nearest) in [
        ("", "label"),
        (" ", "label"),
        (",", "label"),
        ("gate,", "gate"),
        ("gte", "gate"),
        ("Gate", "gate"),
        ("label;gate", "label"),
        ("anything", "label"),
        ("gate,anything", "gate"),
    ] {
        let (request, notes) = parsed(value);
        let [(InvalidAnnotation, note)] = &notes[..] else { panic!("{value:?}: {notes:?}") };
        assert_eq!(request, Request::Invalid, "{value:?}");
        let start = format!("Annotation redislease.io/activation is {value:?} and must {words}: use {nearest:?}. ");
        assert!(note.starts_with(&start), "{value:?}: {note}");
        // The suggested value is accepted.
        assert_eq!(parsed(nearest).1, []);
    }
}

/// A workload of this kind with a lease and more annotations.
fn switched(kind: WorkloadKind, annotations: &[(&str, &str)]) -> WorkloadFacts {
    let mut workload = workload("b", &[&[("lease", "true")], annotations].concat());
    workload.key.1.kind = kind;
    workload
}

#[test]
fn a_cluster_holds_the_lease_of_a_workload_that_is_switched() {
    for (kind, annotations, wanted) in [
        (Deployment, vec![("activation", "scale"), ("active-replicas", "3")], json!({"scale": {"replicas": 3}})),
        (
            StatefulSet,
            vec![("granularity", "cluster"), ("activation", "label, scale"), ("active-replicas", " 1 ")],
            json!({"scale": {"replicas": 1}}),
        ),
        (CronJob, vec![("activation", "suspend")], json!({"suspend": true})),
    ] {
        let parsed = parse(&switched(kind, &annotations));
        let Request::Lease(desired) = parsed.request else { panic!("{annotations:?}: {:?}", parsed.problems) };
        let spec = desired.spec;
        assert_eq!(spec.granularity, crate::api::lease::Granularity::Cluster);
        assert_eq!(spec.activation, Some(serde_json::from_value(wanted).unwrap()), "{annotations:?}");
    }
}

type Annotations = &'static [(&'static str, &'static str)];

/// Annotations that do not fit each other or the kind of the workload, and what is reported.
const NOT_SWITCHED: [(WorkloadKind, Annotations, &str); 14] = [
    (
        Deployment,
        &[("activation", "scale")],
        "redislease.io/active-replicas is not set and must be the number of replicas",
    ),
    (Deployment, &[("activation", "scale"), ("active-replicas", "0")], "from 1 to 10000: use \"1\""),
    (Deployment, &[("activation", "scale")], "a whole number from 1 to 10000. The operator"),
    (
        Deployment,
        &[("active-replicas", "3")],
        "redislease.io/activation is not set and must contain scale, because redislease.io/active-replicas is set",
    ),
    (
        Deployment,
        &[("granularity", "cluster")],
        "exactly one of scale and suspend with redislease.io/granularity cluster: use \"scale\"",
    ),
    (
        Deployment,
        &[("granularity", "pod"), ("activation", "scale")],
        "redislease.io/granularity is \"pod\" and must be \"cluster\"",
    ),
    (Deployment, &[("activation", "suspend")], "not contain suspend, which needs a CronJob: use \"scale\""),
    (
        CronJob,
        &[("activation", "scale")],
        "not contain scale, which needs a Deployment or StatefulSet: use \"suspend\"",
    ),
    (CronJob, &[("activation", "scale,suspend")], "exactly one of scale and suspend"),
    (Deployment, &[("activation", "gate,scale")], "contain only label, scale and suspend"),
    (Job, &[("activation", "suspend")], "not contain scale or suspend, which need a Deployment"),
    (Job, &[("activation", "scale"), ("granularity", "pod")], "which need a Deployment, a StatefulSet or a CronJob"),
    (Job, &[("activation", "scale"), ("granularity", "cluster")], "or a CronJob: use \"gate\""),
    (Job, &[("granularity", "cluster")], "be \"pod\": only a Deployment, a StatefulSet or a CronJob"),
];

#[test]
fn a_workload_that_cannot_be_switched_as_annotated_is_reported() {
    for (kind, annotations, says) in NOT_SWITCHED {
        let (reason, note) = only_problem(&switched(kind, annotations));
        assert_eq!(reason, InvalidAnnotation, "{annotations:?}: {note}");
        assert!(note.contains(says), "{annotations:?}: {note}");
    }
}
