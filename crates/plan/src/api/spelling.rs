//! Spelling mistakes: the known text that is nearest to another one.

/// How similar a text must be to a known one, from 0 to 1, to be taken for a spelling mistake.
const SIMILAR: f64 = 0.6;
/// A part of a known text must have this length to be taken for it.
const PART: usize = 4;

/// The known text that is most similar to `text`, if any is similar.
pub fn nearest<'a>(text: &str, known: &[&'a str]) -> Option<&'a str> {
    let text = text.trim().to_ascii_lowercase();
    let similarity = |other: &str| {
        let is_part = text.len() >= PART && other.contains(text.as_str());
        strsim::normalized_damerau_levenshtein(&text, other).max(if is_part { SIMILAR } else { 0.0 })
    };
    let scored = known.iter().map(|other| (similarity(other), *other));
    scored.filter(|(score, _)| *score >= SIMILAR).max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, other)| other)
}

/// The annotations of a workload, without their prefix.
pub const WORKLOAD_ANNOTATIONS: [&str; 9] = [
    "lease",
    "quorum",
    "granularity",
    "lease-duration",
    "renew-interval",
    "grace-period",
    "activation",
    "active-replicas",
    "activated-by",
];

/// Whether an unknown annotation of a workload, without its prefix, is probably meant to name its lease.
pub fn is_meant_as_name(name: &str) -> bool {
    !WORKLOAD_ANNOTATIONS.contains(&name)
        && matches!(nearest(name, &WORKLOAD_ANNOTATIONS), Some("lease" | "activated-by"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 6] = ["lease", "quorum", "granularity", "lease-duration", "renew-interval", "grace-period"];

    #[test]
    fn a_spelling_mistake_is_recognised_and_another_word_is_not() {
        for (text, wanted) in [
            ("leese", Some("lease")),
            ("Lease", Some("lease")),
            ("lease-duraton", Some("lease-duration")),
            ("leaseDuration", Some("lease-duration")),
            ("lease_duration", Some("lease-duration")),
            ("duration", Some("lease-duration")),
            ("grace", Some("grace-period")),
            ("quorums", Some("quorum")),
            ("renewal-interval", Some("renew-interval")),
            ("activation", None),
            ("active-service", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(text, &KNOWN), wanted, "{text:?}");
        }
    }
}
