//! The spec of one lease: validated, and compared with its quorum.
//!
//! It is resolved once after each change of the lease or of the quorum; the candidates, the durations and the keys all come
//! from the same spec. An edit that is invalid, or that does not fit the quorum, changes nothing: the spec before it stays in
//! use with its candidates, so that the edit ends no term.

use std::sync::Arc;

use crate::api::{RedisLease, ValidLease, ValidQuorum};

/// The spec that a lease uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpecFacts {
    /// The spec in use; `None` if none was valid yet.
    pub valid: Option<Arc<ValidLease>>,
    /// Why the spec in the resource is not used, as a sentence.
    pub problem: Option<String>,
    /// This process has read no spec that fits the quorum: the term in the status may belong to an earlier spec.
    pub is_unfit: bool,
}

/// The last read spec of a lease, and the one that it uses.
#[derive(Clone, Debug, Default)]
pub struct SpecCache {
    read: Option<Result<Arc<ValidLease>, String>>,
    used: SpecFacts,
    fit: Fit,
}

/// Whether the spec in use was compared with the quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fit {
    /// The quorum was never known.
    #[default]
    Unknown,
    /// It did not fit, and there was no earlier spec.
    Unfit,
    /// It fitted once.
    Fits,
}

impl SpecCache {
    /// Reads the spec of the resource. [`SpecCache::compare`] follows.
    pub fn read(&mut self, lease: &RedisLease) {
        self.read = Some(ValidLease::try_from(lease).map(Arc::new).map_err(|invalid| invalid.to_string()));
    }

    /// Compares the spec with the quorum, which is `None` while it is unknown or the namespace may not use it. Until then, a
    /// new spec does not replace one that fitted.
    pub fn compare(&mut self, quorum: Option<&ValidQuorum>) {
        let spec = match &self.read {
            None => return,
            Some(Err(problem)) => {
                self.used.problem = Some(problem.clone());
                return;
            }
            Some(Ok(spec)) => spec,
        };
        let mismatch = quorum.map(|quorum| spec.check_against(quorum));
        let fit = match &mismatch {
            Some(Ok(())) => Fit::Fits,
            _ if self.fit == Fit::Fits => Fit::Fits,
            Some(Err(_)) => Fit::Unfit,
            None => self.fit,
        };
        let replaces = matches!(mismatch, Some(Ok(()))) || fit != Fit::Fits;
        if replaces {
            self.used.valid = Some(spec.clone());
        }
        self.fit = fit;
        self.used.is_unfit = fit == Fit::Unfit;
        self.used.problem = mismatch.and_then(Result::err);
    }

    /// The spec in use.
    pub const fn facts(&self) -> &SpecFacts {
        &self.used
    }

    /// The spec whose candidates count. The pods of a spec that never fitted the quorum are no candidates: the term in the status may
    /// belong to an earlier spec, which this process has not read. If the candidate is a workload, the reconciler can tell whether the
    /// term belongs to it.
    pub fn of_candidates(&self) -> Option<&ValidLease> {
        self.used.valid.as_deref().filter(|spec| self.fit != Fit::Unfit || spec.cluster.is_some())
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::samples;

    fn lease(duration: &str, app: &str) -> RedisLease {
        let candidates = json!({"selector": {"matchLabels": {"app": app}}});
        samples::lease("jobs", "billing", &json!({"leaseDuration": duration, "candidates": candidates}))
    }

    fn quorum(longest: &str) -> ValidQuorum {
        samples::valid_quorum(&json!({"maxLeaseDuration": longest}))
    }

    fn used(cache: &SpecCache) -> Option<Duration> {
        cache.facts().valid.as_ref().map(|spec| spec.lease_duration)
    }

    #[test]
    fn an_edit_that_does_not_fit_keeps_the_spec_before_it_with_its_candidates() {
        let mut cache = SpecCache::default();
        cache.read(&lease("30s", "a"));
        cache.compare(Some(&quorum("60s")));
        let before = cache.of_candidates().unwrap().clone();
        for unfit in [lease("90s", "b"), lease("10s", "b")] {
            cache.read(&unfit);
            cache.compare(Some(&quorum("60s")));
            assert_eq!(cache.of_candidates(), Some(&before));
            assert_eq!(used(&cache), Some(Duration::from_secs(30)));
            assert!(cache.facts().problem.is_some());
        }
        // A later change of the quorum may allow it.
        cache.read(&lease("90s", "b"));
        cache.compare(Some(&quorum("120s")));
        assert_eq!((used(&cache), &cache.facts().problem), (Some(Duration::from_secs(90)), &None));
        assert_ne!(cache.of_candidates(), Some(&before));
    }

    #[test]
    fn an_edit_while_the_quorum_is_unknown_waits_for_it() {
        let mut cache = SpecCache::default();
        cache.read(&lease("30s", "a"));
        cache.compare(None);
        assert_eq!(used(&cache), Some(Duration::from_secs(30)), "the first spec is used");
        cache.compare(Some(&quorum("60s")));
        cache.read(&lease("40s", "b"));
        cache.compare(None);
        assert_eq!(used(&cache), Some(Duration::from_secs(30)));
        cache.compare(Some(&quorum("60s")));
        assert_eq!(used(&cache), Some(Duration::from_secs(40)));
    }

    #[test]
    fn a_spec_that_never_fitted_has_durations_and_no_candidates() {
        let mut cache = SpecCache::default();
        assert_eq!(*cache.facts(), SpecFacts::default());
        cache.read(&lease("90s", "a"));
        cache.compare(Some(&quorum("60s")));
        assert_eq!((used(&cache), cache.of_candidates()), (Some(Duration::from_secs(90)), None));
        assert!(cache.facts().problem.as_ref().unwrap().contains("1m30s"), "{:?}", cache.facts().problem);
        // Nor does it fit when the quorum is deleted.
        cache.compare(None);
        assert_eq!((cache.of_candidates(), cache.facts().is_unfit), (None, true));
        cache.compare(Some(&quorum("120s")));
        assert!(cache.of_candidates().is_some() && !cache.facts().is_unfit);
    }
}
