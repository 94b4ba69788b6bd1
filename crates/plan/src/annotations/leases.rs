//! What is wrong with the annotations of a RedisLease.

use std::collections::BTreeMap;

use crate::api::names::{
    ANNOTATION_PREFIX, CREATED_FOR_ANNOTATION, HANDOVER_REQUESTED_ANNOTATION, HANDOVER_TO_ANNOTATION, cut,
};

use super::facts::MOST_UNKNOWN;
use super::problem::{IGNORED, Place, Problem};

/// The problems with the annotations of a RedisLease. The target of a handover is checked when a handover is requested.
pub fn problems(annotations: Option<&BTreeMap<String, String>>) -> Vec<Problem> {
    let known = [CREATED_FOR_ANNOTATION, HANDOVER_REQUESTED_ANNOTATION, HANDOVER_TO_ANNOTATION];
    let unknown = |(key, value): (&String, &String)| {
        let name = key.strip_prefix(ANNOTATION_PREFIX).filter(|_| !known.contains(&key.as_str()))?;
        Some(Problem::unknown(name, &cut(value), Place::Lease, IGNORED))
    };
    annotations.into_iter().flatten().filter_map(unknown).take(MOST_UNKNOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unknown_annotations_are_a_problem() {
        let found = |key: &str| problems(Some(&[(key.to_owned(), "x".to_owned())].into()));
        for key in [
            "redislease.io/created-for",
            "redislease.io/handover-requested",
            "redislease.io/handover-to",
            "kubectl.kubernetes.io/last-applied-configuration",
        ] {
            assert_eq!(found(key), [], "{key}");
        }
        assert_eq!(problems(None), []);
        for (key, advice) in [
            (
                "redislease.io/handover-request",
                "is unknown: use redislease.io/handover-requested. The operator ignores",
            ),
            ("redislease.io/exclude", "has no effect on a RedisLease: set it on the pods"),
            (
                "redislease.io/lease-duration",
                "has no effect on a RedisLease: write it into the metadata of the Deployment",
            ),
        ] {
            let [problem] = &found(key)[..] else { panic!("one problem") };
            assert!(problem.note.contains(advice), "{problem:?}");
        }
    }
}
