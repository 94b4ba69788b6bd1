//! Whether a workload lets its lease start and stop it.
//!
//! The right to write RedisLeases is not the right to stop somebody's workload: the workload itself names the lease, in one of two
//! annotations. `redislease.io/lease` also chooses the way and the replicas; with `redislease.io/activated-by` the lease does.

use redislease_core::op::Token;

use crate::api::ValidLease;
use crate::api::lease::QuorumRef;
use crate::api::names::{
    self, ACTIVATED_BY_ANNOTATION, ACTIVATION_ANNOTATION, ANNOTATION_PREFIX, LEASE_ANNOTATION, QUORUM_ANNOTATION,
    REPLICAS_ANNOTATION, is_lease_name, names_a_lease,
};
use crate::api::spelling::is_meant_as_name;
use crate::api::validated::ClusterActivation;
use crate::election::WorkloadFacts;
use crate::plan::facts::Facts;
use crate::plan::recorded::latest_given_token;

/// Why the lease must not start or stop the workload, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The workload does not name this lease.
    Name(String),
    /// It names this lease, and its annotations ask for another activation or quorum, or to stop it would delete its volumes; or it is
    /// unclear which lease it names, because it names two or an annotation is misspelt. After an edit of the annotations the first is so until
    /// the operator has changed the lease: a term that runs goes on.
    Way(String),
}

/// Why the lease must not start or stop its workload, if the workload was read.
pub fn missing_consent(facts: &Facts) -> Option<Missing> {
    let lease = facts.lease.as_ref()?;
    // The operator does not change the quorum of a lease that it has made, so a later annotation counts for no lease that has had a
    // term. Before the first term, the marks of such a lease can be forged.
    let was_made = names::created_for(&lease.metadata).is_some() && latest_given_token(lease) > Token(0);
    let quorum = Some(&*lease.spec.quorum_ref.name).filter(|_| !was_made);
    missing(facts.spec.valid.as_ref()?, quorum, facts.workload()?)
}

/// Why the lease must not start or stop the workload; `None` if it may. `quorum`: the one that the workload must name too.
fn missing(spec: &ValidLease, quorum: Option<&str>, workload: &WorkloadFacts) -> Option<Missing> {
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

/// Why a stop of the workload may not stop all its pods, as a sentence.
pub fn stop_risk(facts: &Facts) -> Option<&'static str> {
    let activation = facts.spec.valid.as_ref()?.cluster?;
    let runs_several = matches!(activation, ClusterActivation::Scale(replicas) if replicas > 1);
    (runs_several && facts.workload()?.stops_in_order).then_some(
        "When the lease is lost while a pod of the StatefulSet is not Ready, Kubernetes does not stop the pods before it, because \
         podManagementPolicy is OrderedReady: create it again with Parallel.",
    )
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

/// What the annotations of the workload must say for this spec; `None` if they say it.
fn differs<'a>(
    spec: &ValidLease,
    quorum: Option<&str>,
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
    let named = value(QUORUM_ANNOTATION).map_or_else(|| QuorumRef::default().name, str::to_owned);
    if let Some(quorum) = quorum.filter(|quorum| *quorum != named) {
        return Some(format!("the spec names the quorum {quorum}, so {QUORUM_ANNOTATION} must be {quorum}"));
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
            let found = missing(&spec(), Some("default"), &workload(&annotations));
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
        let Some(Missing::Way(says)) = missing(&other, Some("default"), &workload(&annotations)) else {
            panic!("it starts nothing")
        };
        assert!(says.contains("the keys x, so redislease.io/activated-by must name the lease instead"), "{says}");
        assert_eq!(
            missing(&other, Some("default"), &workload(&json!({"redislease.io/activated-by": "billing"}))),
            None
        );
    }

    /// Nor do its keys on another quorum.
    #[test]
    fn a_lease_on_another_quorum_needs_an_annotation_that_names_it() {
        let mut annotations = json!({"redislease.io/lease": "billing", "redislease.io/activation": "scale",
            "redislease.io/active-replicas": "3"});
        let Some(Missing::Way(says)) = missing(&spec(), Some("other"), &workload(&annotations)) else {
            panic!("it starts nothing")
        };
        assert!(says.contains("the quorum other, so redislease.io/quorum must be other"), "{says}");
        annotations["redislease.io/quorum"] = json!("other");
        assert_eq!(missing(&spec(), Some("other"), &workload(&annotations)), None);
        assert!(missing(&spec(), Some("default"), &workload(&annotations)).is_some());
        assert_eq!(missing(&spec(), Some("other"), &workload(&json!({"redislease.io/activated-by": "billing"}))), None);
    }

    /// A message that is too long would keep the whole status from being written.
    #[test]
    fn a_long_value_is_cut() {
        let annotations = json!({"redislease.io/lease": "\u{7f}".repeat(200_000)});
        let Some(Missing::Way(says)) = missing(&spec(), Some("default"), &workload(&annotations)) else {
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
            let (says, is_way) = match missing(&spec(), Some("default"), &workload(&annotations)) {
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
