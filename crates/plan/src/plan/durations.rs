//! Converts the durations of a lease for the core.

use redislease_core::backoff::Backoff;
use redislease_core::lease::{Config, OnDeadline};
use redislease_core::quorum::Quorum;
use redislease_core::time::{Drift, Millis};

use super::facts::OpenQuorum;
use crate::api::ValidLease;
use crate::api::validated::{MAX_LEASE, REAP_MARGIN};

/// The timeout of one request if no quorum defines one.
const COMMAND_TIMEOUT: Millis = Millis(500);

/// The durations of `spec` on `quorum`.
///
/// A request waits at most half a renewal interval, so that a lost packet does not end the term: an edit of the quorum can ask for
/// more than the specs of its leases allow.
///
/// A Redis node that lost data does not vote for the quorum's longest lease, so no key may outlive that, regardless of
/// the spec.
pub(super) fn of(spec: Option<&ValidLease>, quorum: Option<&OpenQuorum>) -> Config {
    let Some(spec) = spec else { return longest(quorum) };
    let asked = Millis::from(spec.lease_duration);
    let ttl = quorum.map_or(asked, |quorum| asked.min(quorum.longest_lease));
    let (stop_budget, renew_interval) =
        fit(asked, ttl, Millis::from(spec.stop_budget()), Millis::from(spec.renew_interval));
    Config {
        quorum: size(quorum),
        ttl,
        renew_interval,
        stop_budget,
        command_timeout: command_timeout(quorum, renew_interval),
        drift: Drift::STANDARD,
        backoff: spec.retry,
        deadline: OnDeadline::Seal,
    }
}

/// The longest durations that the API allows, for a term whose spec is not valid.
pub(super) fn longest(quorum: Option<&OpenQuorum>) -> Config {
    let renew_interval = Millis(5000);
    Config {
        quorum: size(quorum),
        ttl: Millis::from(MAX_LEASE),
        renew_interval,
        stop_budget: Millis::from(REAP_MARGIN),
        command_timeout: command_timeout(quorum, renew_interval),
        drift: Drift::STANDARD,
        backoff: Backoff::one_attempt(1000),
        deadline: OnDeadline::Seal,
    }
}

fn command_timeout(quorum: Option<&OpenQuorum>, renew_interval: Millis) -> Millis {
    let asked = quorum.map_or(COMMAND_TIMEOUT, |quorum| quorum.command_timeout);
    asked.min(Millis((renew_interval.0 / 2).max(1)))
}

/// Without a quorum, a single node that never answers is used.
fn size(quorum: Option<&OpenQuorum>) -> Quorum {
    quorum.map_or(Quorum::ONE, |quorum| quorum.quorum)
}

/// The stop budget and the renewal interval for a lease of `ttl`, which may be shorter than the spec's `asked`. The
/// status shows that the spec does not fit its quorum; a held term continues with less time for the holder to stop.
fn fit(asked: Millis, ttl: Millis, stop_budget: Millis, renew_interval: Millis) -> (Millis, Millis) {
    if ttl >= asked {
        return (stop_budget, renew_interval);
    }
    let stop_budget = stop_budget.min(Millis(ttl.0 / 2));
    let most = Millis((ttl.saturating_sub(stop_budget).0 / 3).max(1));
    (stop_budget, renew_interval.min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_that_fit_stay_and_others_leave_room_for_two_renewals() {
        let fit = |asked, ttl, budget, renew| fit(Millis(asked), Millis(ttl), Millis(budget), Millis(renew));
        for (ttl, budget, renew) in [(30_000, 11_000, 5000), (60_000, 41_000, 5000), (10_000, 4000, 2000)] {
            assert_eq!(fit(ttl, ttl, budget, renew), (Millis(budget), Millis(renew)), "{ttl}");
        }
        // The longest lease of the quorum is 60 s; the spec wants two minutes, 40 s to stop and 26 s between renewals.
        assert_eq!(fit(120_000, 60_000, 41_000, 26_000), (Millis(30_000), Millis(10_000)));
        for (ttl, budget, renew) in [(10_000, 100_000, 30_000), (1000, 1000, 1000), (60_000, 59_000, 1)] {
            let (budget, renew) = fit(3_600_000, ttl, budget, renew);
            assert!(Drift::STANDARD.least(Millis(ttl)) > budget + renew + renew, "{ttl}: {budget:?} {renew:?}");
        }
    }
}
