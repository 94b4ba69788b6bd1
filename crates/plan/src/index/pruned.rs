//! Specs that lost fields without a change of the object: its CustomResourceDefinition became one that lacks them.
//!
//! With another definition, the API server shows the same stored object with other fields. A lease with granularity Cluster would become
//! one for pods, its term would end, and its workload would run on beside that of another cluster. The generation of an object grows with
//! each change of its spec, so a spec that lost fields in the same generation was not changed by anybody.

use serde_json::{Value, json};

use crate::api::RedisLease;
use crate::api::lease::RedisLeaseSpec;

/// Whether `shown` is the same generation of the object as `known`, without some fields of its spec.
pub(super) fn is_pruned(known: &RedisLease, shown: &RedisLease) -> bool {
    let generation = |lease: &RedisLease| lease.metadata.generation;
    if known.spec == shown.spec || generation(known).is_none() || generation(known) != generation(shown) {
        return false;
    }
    let default = serde_json::from_value::<RedisLeaseSpec>(json!({"candidates": {}}));
    let values =
        [Ok(known.spec.clone()), Ok(shown.spec.clone()), default].map(|spec| spec.and_then(serde_json::to_value));
    matches!(&values, [Ok(known), Ok(shown), Ok(default)] if lacks_only(known, shown, default))
}

/// Whether each field of `shown` is that of `known`, or the default.
fn lacks_only(known: &Value, shown: &Value, default: &Value) -> bool {
    match (known, shown) {
        (Value::Object(fields), Value::Object(others)) => {
            fields.keys().chain(others.keys()).all(|key| lacks_only(&known[key], &shown[key], &default[key]))
        }
        _ => known == shown || shown == default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn lease(generation: Option<i64>, spec: &Value) -> RedisLease {
        let mut lease = samples::lease("jobs", "billing", spec);
        lease.metadata.generation = generation;
        lease
    }

    #[test]
    fn a_spec_that_lost_fields_in_the_same_generation_was_pruned() {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let whole = json!({
            "candidates": {"workloadRef": target}, "granularity": "Cluster", "activation": {"scale": {"replicas": 3}},
            "leaseDuration": "20s", "election": {"requireReady": false},
        });
        let without = |paths: &[&str]| {
            let mut spec = whole.clone();
            for path in paths {
                let (parent, field) = path.rsplit_once('/').unwrap();
                spec.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(field);
            }
            spec
        };
        let known = lease(Some(2), &whole);
        let paths =
            ["/granularity", "/activation", "/leaseDuration", "/election/requireReady", "/candidates/workloadRef"];
        for pruned in paths.iter().map(|path| without(&[path])).chain([without(&paths)]) {
            let shown = lease(Some(2), &pruned);
            assert!(is_pruned(&known, &shown), "{pruned}");
            assert!(!is_pruned(&shown, &known), "the right definition is back: {pruned}");
            assert!(!is_pruned(&known, &lease(Some(3), &pruned)), "somebody changed it");
            assert!(!is_pruned(&lease(None, &whole), &lease(None, &pruned)));
        }
        assert!(!is_pruned(&known, &known));
        // After a restore of etcd, the same generation can have another spec.
        let mut other = without(&["/activation"]);
        other["leaseDuration"] = json!("25s");
        assert!(!is_pruned(&known, &lease(Some(2), &other)));
    }
}
