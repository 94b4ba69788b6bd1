//! What is wrong with the annotations of a pod.
//!
//! Most of these annotations come from a pod template. Annotations under other prefixes are not in [`Annotations`], except
//! the operator's own `token.redislease.io/LEASE`.

use crate::api::names::{ANNOTATION_PREFIX, EXCLUDE_ANNOTATION, PRIORITY_ANNOTATION, cut};
use crate::election::Annotations;

use super::facts::MOST_UNKNOWN;
use super::problem::{IGNORED, Place, Problem};
use super::suggest;

/// See [`Annotations::priority`].
const NOT_ELECTED: &str = "The pod cannot be elected until this is corrected.";
/// See [`Annotations::excludes`].
const NOT_EXCLUDED: &str = "The pod can be elected until this is corrected.";

/// The problems with the annotations of a pod. Allocates nothing if there are none.
pub fn problems(annotations: &Annotations) -> Vec<Problem> {
    let problem = |(key, value): (&String, &String)| {
        let name = key.strip_prefix(ANNOTATION_PREFIX)?;
        match key.as_str() {
            PRIORITY_ANNOTATION if annotations.priority().is_some() => None,
            PRIORITY_ANNOTATION => {
                let value = cut(value);
                let must = "be an integer that fits into 64 bits";
                Some(Problem::invalid(name, Some(&value), must, Some(&suggest::integer(&value)), NOT_ELECTED))
            }
            EXCLUDE_ANNOTATION if matches!(value.as_str(), "true" | "false") => None,
            EXCLUDE_ANNOTATION => {
                let value = cut(value);
                let must = "be \"true\" or \"false\"";
                Some(Problem::invalid(name, Some(&value), must, Some(suggest::truth(&value)), NOT_EXCLUDED))
            }
            _ => Some(Problem::unknown(name, &cut(value), Place::Pod, IGNORED)),
        }
    };
    annotations.iter().filter_map(problem).take(MOST_UNKNOWN).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::status::NoticeReason::{self, InvalidAnnotation, UnknownAnnotation};

    fn found(key: &str, value: &str) -> Vec<(NoticeReason, String)> {
        let annotations = [(key.to_owned(), value.to_owned())].into_iter().collect();
        problems(&annotations).into_iter().map(|problem| (problem.reason, problem.note)).collect()
    }

    #[test]
    fn right_annotations_and_those_of_others_are_no_problem() {
        for (key, value) in [
            ("redislease.io/priority", "100"),
            ("redislease.io/priority", " -7 "),
            ("redislease.io/exclude", "true"),
            ("redislease.io/exclude", "false"),
            ("token.redislease.io/billing", "7"),
            ("example.com/priorty", "100"),
            ("example.redislease.io/priorty", "100"),
        ] {
            assert_eq!(found(key, value), [], "{key}: {value}");
        }
    }

    #[test]
    fn a_problem_names_the_annotation_its_value_and_the_nearest_right_one() {
        let itself = "write it into the metadata of the Deployment, StatefulSet, DaemonSet, CronJob or Job itself, not into its \
                      pod template";
        let unknown = |key: &str, value: &str, rest: &str| {
            let ignored = "The operator ignores it until this is corrected.";
            (UnknownAnnotation, format!("Annotation redislease.io/{key} (value {value:?}) {rest}. {ignored}"))
        };
        let invalid = |key: &str, value: &str, rest: &str| {
            (InvalidAnnotation, format!("Annotation redislease.io/{key} is {value:?} and must {rest}"))
        };
        let integer = |use_: &str| {
            format!(
                "be an integer that fits into 64 bits: use {use_:?}. The pod cannot be elected until this is corrected."
            )
        };
        let truth = |use_: &str| {
            format!("be \"true\" or \"false\": use {use_:?}. The pod can be elected until this is corrected.")
        };
        for (reason, note) in [
            unknown("priorty", "100", "is unknown: use redislease.io/priority"),
            unknown("Exclude", "true", "is unknown: use redislease.io/exclude"),
            unknown("lease", "true", &format!("has no effect on a pod: {itself}")),
            unknown("grace-period", "5s", &format!("has no effect on a pod: {itself}")),
            unknown("lease-duraton", "5s", &format!("is unknown: use redislease.io/lease-duration, and {itself}")),
            unknown("handover-to", "billing-0", "has no effect on a pod: set it on the RedisLease"),
            unknown(
                "topology",
                "zone",
                "is unknown in this version. Known annotations of a pod: redislease.io/priority, redislease.io/exclude",
            ),
            invalid("priority", "high", &integer("100")),
            invalid("priority", "10.5", &integer("10")),
            invalid("priority", "", &integer("0")),
            invalid("exclude", "yes", &truth("true")),
            invalid("exclude", "True", &truth("true")),
            invalid("exclude", "no", &truth("false")),
        ] {
            let (key, value) = note.split_once("redislease.io/").and_then(|(_, rest)| rest.split_once(' ')).unwrap();
            let value = value.split('"').nth(1).unwrap();
            assert_eq!(found(&format!("redislease.io/{key}"), value), [(reason, note.clone())]);
        }
    }

    #[test]
    fn each_annotation_has_its_problem_and_their_number_is_limited() {
        let all = |number: usize| (0..number).map(|number| (format!("redislease.io/x{number}"), String::new()));
        assert_eq!(problems(&all(3).collect()).len(), 3);
        assert_eq!(problems(&all(100).collect()).len(), MOST_UNKNOWN);
        let [(_, note)] = &found("redislease.io/priority", &"ä".repeat(200_000))[..] else { panic!("one problem") };
        assert!(note.len() < 1024 && note.contains("ä…\"") && note.contains("use \"0\""), "{note}");
    }

    proptest! {
        /// The notes are composed in the task of all leases.
        #[test]
        fn no_text_of_a_user_panics(name in "\\PC{0,63}|[a-z-]{0,20}|priority|exclude", value in "\\PC{0,300}|[0-9+_ -]{0,40}") {
            found(&format!("redislease.io/{name}"), &value);
        }
    }
}
