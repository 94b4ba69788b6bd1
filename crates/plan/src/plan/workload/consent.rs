//! Whether a workload lets its lease start and stop it.
//!
//! The right to write RedisLeases is not the right to stop somebody's workload: the workload itself names the lease, in one of two
//! annotations. `redislease.io/lease` also chooses the way and the replicas; with `redislease.io/activated-by` the lease does.

use crate::api::ValidLease;
use crate::api::lease::QuorumRef;
use crate::api::names::{
    ACTIVATED_BY_ANNOTATION, ACTIVATION_ANNOTATION, ANNOTATION_PREFIX, LEASE_ANNOTATION, QUORUM_ANNOTATION,
    REPLICAS_ANNOTATION, is_lease_name, names_a_lease,
};
use crate::api::spelling::is_meant_as_name;
use crate::api::validated::ClusterActivation;
use crate::election::WorkloadFacts;
use crate::plan::facts::Facts;

/// Why the lease must not start or stop the workload, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The workload does not name this lease.
    Name(String),
    /// It names this lease, and its annotations ask for another activation or quorum, or it cannot be stopped well; or it is unclear
    /// which lease it names, because it names two or an annotation is misspelt. After an edit of the annotations the first is so until
    /// the operator has changed the lease: a term that runs goes on.
    Way(String),
}

/// Why the lease must not start or stop its workload, if the workload was read.
pub fn missing_consent(facts: &Facts) -> Option<Missing> {
    let quorum = &facts.lease.as_ref()?.spec.quorum_ref;
    missing(facts.spec.valid.as_ref()?, quorum, facts.workload()?)
}

/// Why the lease must not start or stop the workload; `None` if it may.
fn missing(spec: &ValidLease, quorum: &QuorumRef, workload: &WorkloadFacts) -> Option<Missing> {
    let activation = spec.cluster?;
    let (kind, lease) = (workload.kind.as_str(), &spec.name);
    let title = format!("{kind} {}/{}", workload.namespace, workload.name);
    let value = |key: &str| workload.annotations.get(key).map(String::as_str);
    if let Some(misspelt) = misspelt(workload) {
        return Some(Missing::Way(format!(
            "{title} does not say clearly which lease may start and stop it: its annotation {misspelt} must be corrected. A term \
             that runs goes on, and no other begins before."
        )));
    }
    let generated = match value(LEASE_ANNOTATION) {
        None | Some("false") => None,
        Some("true") => Some(workload.name.as_str()),
        named => named,
    };
    match (generated, value(ACTIVATED_BY_ANNOTATION)) {
        (Some(first), Some(second)) if first != second => {
            let two = format!(
                "{title} names two leases, {first} in {LEASE_ANNOTATION} and {second} in {ACTIVATED_BY_ANNOTATION}: no term \
                 begins until one of the annotations is removed."
            );
            // The second one was added to a workload that may run.
            Some(if [first, second].contains(&lease.as_str()) {
                Missing::Way(format!("{two} A term that runs goes on."))
            } else {
                Missing::Name(two)
            })
        }
        (named, by) if by.or(named) == Some(lease) && workload.deletes_volumes => Some(Missing::Way(format!(
            "The operator does not scale {title}: Kubernetes would delete its volumes, because its field \
             spec.persistentVolumeClaimRetentionPolicy.whenScaled is Delete. Set the field to Retain. Until then no term begins; one \
             that runs goes on, and the workload is not stopped when it ends."
        ))),
        (named, by) if by.or(named) == Some(lease) && workload.stops_in_order && runs_several(activation) => {
            Some(Missing::Way(stops_in_order(&title)))
        }
        (_, Some(named)) if named == lease => None,
        (Some(named), None) if named == lease => differs(spec, quorum, activation, &value).map(|want| {
            Missing::Way(format!(
                "The spec of the lease differs from the annotations of {title}, which choose how it is activated: {want}."
            ))
        }),
        (Some(other), _) | (_, Some(other)) => {
            let rest = if generated.is_some() { format!(" and remove {LEASE_ANNOTATION}") } else { String::new() };
            Some(Missing::Name(format!(
                "{title} names the lease {other}, and only that lease may start and stop it. To let this lease do it, set its \
                 annotation {ACTIVATED_BY_ANNOTATION}={lease}{rest}."
            )))
        }
        (None, None) => Some(Missing::Name(format!(
            "{title} does not allow this lease to start and stop it. Its owner allows it with the annotation \
             {ACTIVATED_BY_ANNOTATION}={lease} on the {kind}."
        ))),
    }
}

/// The annotation, with its value, that is probably meant to name a lease and does not. A spelling mistake must not end a term: the
/// workload would run on, and that of another cluster would start beside it.
fn misspelt(workload: &WorkloadFacts) -> Option<String> {
    let all: Vec<(&str, &str)> = workload.annotations.iter().map(|(key, value)| (&**key, &**value)).collect();
    let names = |key, value| key == ACTIVATED_BY_ANNOTATION || (key == LEASE_ANNOTATION && value != "false");
    let is_wrong = |key, value| {
        let is_true = key == LEASE_ANNOTATION && value == "true" && is_lease_name(&workload.name);
        !is_true && !names_a_lease(value)
    };
    let is_meant = |key: &str| key.strip_prefix(ANNOTATION_PREFIX).is_some_and(is_meant_as_name);
    let is_named = all.iter().any(|(key, value)| names(*key, *value));
    let wrong = all
        .iter()
        .find(|(key, value)| if is_named { names(*key, *value) && is_wrong(*key, *value) } else { is_meant(key) });
    wrong.map(|(key, value)| format!("{key}={}", value.escape_debug()))
}

fn stops_in_order(title: &str) -> String {
    format!(
        "The operator does not start {title}, which has several replicas: with podManagementPolicy OrderedReady, Kubernetes stops its \
         pods one after the other, and none while a later one is not Ready, so that some can run on while another cluster starts its \
         own. Create it again with podManagementPolicy Parallel. Until then no term begins; one that runs goes on."
    )
}

const fn runs_several(activation: ClusterActivation) -> bool {
    matches!(activation, ClusterActivation::Scale(replicas) if replicas > 1)
}

/// What the annotations of the workload must say for this spec; `None` if they say it.
fn differs<'a>(
    spec: &ValidLease,
    quorum: &QuorumRef,
    activation: ClusterActivation,
    value: &impl Fn(&str) -> Option<&'a str>,
) -> Option<String> {
    // A lease that the operator creates for a workload locks the key of its name, and so excludes that of each other cluster.
    if *spec.keys != [spec.name.as_str()] {
        let keys = spec.keys.join(", ");
        return Some(format!(
            "the spec locks the keys {keys}, so {ACTIVATED_BY_ANNOTATION} must name the lease instead"
        ));
    }
    // A lease on another quorum excludes none of the leases that other clusters have for such a workload.
    if *value(QUORUM_ANNOTATION).unwrap_or(&QuorumRef::default().name) != *quorum.name {
        return Some(format!(
            "the spec names the quorum {}, so {QUORUM_ANNOTATION} must be {}",
            quorum.name, quorum.name
        ));
    }
    // With another word the annotation is invalid, and it is unclear what the workload allows.
    let is = |way: &str| {
        let ways: Vec<&str> = value(ACTIVATION_ANNOTATION).unwrap_or_default().split(',').map(str::trim).collect();
        ways.contains(&way) && ways.iter().all(|one| ["label", way].contains(one))
    };
    match activation {
        ClusterActivation::Scale(replicas) => {
            let named = value(REPLICAS_ANNOTATION).and_then(|named| named.trim().parse().ok());
            (!is("scale") || named != Some(replicas)).then(|| {
                format!("the spec scales it to {replicas}, so {ACTIVATION_ANNOTATION} must be scale, and {REPLICAS_ANNOTATION} must be {replicas}")
            })
        }
        ClusterActivation::Suspend => (!is("suspend"))
            .then(|| format!("the spec suspends and resumes it, so {ACTIVATION_ANNOTATION} must be suspend")),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::DynamicObject;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::validated::WorkloadKind;
    use crate::samples;

    fn spec() -> ValidLease {
        let spec = json!({"granularity": "Cluster", "activation": {"scale": {"replicas": 3}},
            "candidates": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}});
        ValidLease::try_from(&samples::lease("jobs", "billing", &spec)).unwrap()
    }

    fn workload(annotations: &Value) -> WorkloadFacts {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "jobs", "annotations": annotations}, "spec": {"replicas": 2},
        }))
        .unwrap();
        WorkloadFacts::of(WorkloadKind::Deployment, &object).unwrap()
    }

    #[test]
    fn a_stateful_set_whose_volumes_would_be_deleted_is_known() {
        for (policy, deletes) in [
            (json!(null), false),
            (json!({"whenDeleted": "Delete", "whenScaled": "Retain"}), false),
            (json!({"whenDeleted": "Retain", "whenScaled": "Delete"}), true),
        ] {
            let object: DynamicObject = serde_json::from_value(json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"},
                "spec": {"replicas": 2, "persistentVolumeClaimRetentionPolicy": policy},
            }))
            .unwrap();
            let facts = WorkloadFacts::of(WorkloadKind::StatefulSet, &object).unwrap();
            assert_eq!(facts.deletes_volumes, deletes, "{policy}");
        }
    }

    #[test]
    fn only_the_one_lease_that_the_workload_names_may_start_and_stop_it() {
        let asks = |lease: &str, replicas: &str, ways: &str| {
            json!({"redislease.io/lease": lease, "redislease.io/activation": ways,
            "redislease.io/active-replicas": replicas})
        };
        let scaled = |lease: &str, replicas: &str| asks(lease, replicas, "label, scale");
        let activated = |ways: &str| asks("billing", "3", ways);
        for (annotations, why) in [
            (json!({}), Some("redislease.io/activated-by=billing on the Deployment")),
            (json!({"redislease.io/activated-by": "billing"}), None),
            (
                json!({"redislease.io/activated-by": "other"}),
                Some(
                    "names the lease other, and only that lease may start and stop it. To let this lease do it, set its annotation \
                      redislease.io/activated-by=billing.",
                ),
            ),
            (json!({"redislease.io/activated-by": "billing", "redislease.io/lease": "false"}), None),
            (json!({"redislease.io/activated-by": "billing", "redislease.io/lease": "billing"}), None),
            (scaled("billing", "3"), None),
            (scaled("billing", "2"), Some("active-replicas must be 3")),
            (scaled("true", "3"), Some("names the lease web")),
            (scaled("true", "3"), Some("activated-by=billing and remove redislease.io/lease.")),
            (json!({"redislease.io/lease": "billing"}), Some("activation must be scale")),
            (activated("scale,label"), None),
            // It is not clear what the workload allows.
            (activated("scale,suspend"), Some("activation must be scale")),
            (activated("scale,gate"), Some("activation must be scale")),
            (activated("scale,"), Some("activation must be scale")),
            (scaled("Billing", "3"), Some("redislease.io/lease=Billing must be corrected")),
            (
                json!({"redislease.io/lease": "false", "redislease.io/activated_by": "billing"}),
                Some("redislease.io/activated_by=billing must be corrected"),
            ),
            (
                json!({"redislease.io/lease": "billing", "redislease.io/activated-by": "Billing"}),
                Some("redislease.io/activated-by=Billing must be corrected"),
            ),
        ] {
            let found = missing(&spec(), &QuorumRef::default(), &workload(&annotations));
            match why {
                None => assert_eq!(found, None, "{annotations}"),
                Some(why) => {
                    let found = match found {
                        Some(Missing::Name(found)) if !why.contains("must") => found,
                        Some(Missing::Way(found)) if why.contains("must") => found,
                        other => panic!("{annotations}: {other:?}"),
                    };
                    assert!(found.contains(why), "{annotations}: {found}");
                }
            }
        }
    }

    /// Its keys do not exclude what the leases of other clusters start.
    #[test]
    fn a_lease_with_other_keys_needs_an_annotation_of_its_own() {
        let annotations = json!({"redislease.io/lease": "billing", "redislease.io/activation": "scale",
            "redislease.io/active-replicas": "3"});
        let other = ValidLease { keys: vec!["x".into()], ..spec() };
        let default = QuorumRef::default();
        let Some(Missing::Way(says)) = missing(&other, &default, &workload(&annotations)) else {
            panic!("it starts nothing")
        };
        assert!(says.contains("the keys x, so redislease.io/activated-by must name the lease instead"), "{says}");
        assert_eq!(missing(&other, &default, &workload(&json!({"redislease.io/activated-by": "billing"}))), None);
    }

    /// Nor do its keys on another quorum.
    #[test]
    fn a_lease_on_another_quorum_needs_an_annotation_that_names_it() {
        let mut annotations = json!({"redislease.io/lease": "billing", "redislease.io/activation": "scale",
            "redislease.io/active-replicas": "3"});
        let other = QuorumRef { name: "other".into() };
        let Some(Missing::Way(says)) = missing(&spec(), &other, &workload(&annotations)) else {
            panic!("it starts nothing")
        };
        assert!(says.contains("the quorum other, so redislease.io/quorum must be other"), "{says}");
        annotations["redislease.io/quorum"] = json!("other");
        assert_eq!(missing(&spec(), &other, &workload(&annotations)), None);
        assert!(missing(&spec(), &QuorumRef::default(), &workload(&annotations)).is_some());
        assert_eq!(missing(&spec(), &other, &workload(&json!({"redislease.io/activated-by": "billing"}))), None);
    }

    /// Its controller stops no pod while a later one is not Ready.
    #[test]
    fn several_replicas_of_a_stateful_set_must_stop_at_once() {
        let annotations = json!({"redislease.io/activated-by": "billing"});
        for (policy, scale, is_refused) in
            [("OrderedReady", 3, true), ("OrderedReady", 1, false), ("Parallel", 3, false)]
        {
            let object: DynamicObject = serde_json::from_value(json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet",
                "metadata": {"name": "web", "namespace": "jobs", "annotations": annotations},
                "spec": {"replicas": 0, "podManagementPolicy": policy},
            }))
            .unwrap();
            let workload = WorkloadFacts::of(WorkloadKind::StatefulSet, &object).unwrap();
            let spec = ValidLease { cluster: Some(ClusterActivation::Scale(scale)), ..spec() };
            let found = missing(&spec, &QuorumRef::default(), &workload);
            assert_eq!(matches!(found, Some(Missing::Way(_))), is_refused, "{policy} {scale}: {found:?}");
        }
    }

    /// A message that is too long would keep the whole status from being written.
    #[test]
    fn a_long_value_is_cut() {
        let annotations = json!({"redislease.io/lease": "\u{7f}".repeat(200_000)});
        let Some(Missing::Way(says)) = missing(&spec(), &QuorumRef::default(), &workload(&annotations)) else {
            panic!("it names no lease")
        };
        assert!(says.len() < 3000, "{} bytes", says.len());
    }

    #[test]
    fn a_term_of_one_of_two_named_leases_goes_on() {
        let named = |lease: &str, by: &str| json!({"redislease.io/lease": lease, "redislease.io/activated-by": by});
        for (annotations, goes_on) in
            [(named("true", "billing"), true), (named("billing", "other"), true), (named("one", "two"), false)]
        {
            let (says, is_way) = match missing(&spec(), &QuorumRef::default(), &workload(&annotations)) {
                Some(Missing::Name(says)) => (says, false),
                Some(Missing::Way(says)) => (says, true),
                None => panic!("{annotations}"),
            };
            assert!(
                says.contains("names two leases, ") && says.ends_with("A term that runs goes on.") == goes_on,
                "{says}"
            );
            assert_eq!(is_way, goes_on, "{says}");
        }
    }
}
