//! The options of a run.

use std::{collections::BTreeSet, path::PathBuf, str::FromStr, time::Duration};

/// A part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the table in the module's documentation says what each is")]
pub enum Phase {
    Start,
    Hold,
    Restart,
    Failover,
    Outage,
    Bare,
}

impl Phase {
    /// Every phase, in the order in which they run.
    pub const ALL: [Self; 6] = [Self::Start, Self::Hold, Self::Restart, Self::Failover, Self::Outage, Self::Bare];

    /// As `PHASES` names it.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

impl FromStr for Phase {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|phase| phase.name() == name);
        found.ok_or_else(|| format!("there is no phase {name}; the phases are {}", all()))
    }
}

/// The options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The `redislease` binary. Use a release build for meaningful figures.
    pub binary: PathBuf,
    /// How many leases, each with one pod.
    pub leases: usize,
    /// The phases. [`Phase::Start`] always runs, because the others need its leases.
    pub phases: BTreeSet<Phase>,
    /// `spec.leaseDuration` of every lease, and `spec.maxLeaseDuration` of the quorum.
    pub lease_duration: Duration,
    /// `spec.renewInterval` of every lease.
    pub renew_interval: Duration,
    /// `spec.gracePeriod` of every lease.
    pub grace_period: Duration,
    /// How long the leases are only held.
    pub hold: Duration,
    /// How long two Redis servers are stopped.
    pub outage: Duration,
    /// How long a phase waits for all leases before it counts the remaining ones.
    pub patience: Duration,
    /// How many holders are deleted. Their leases have two pods.
    pub failovers: usize,
    /// How many concurrent calls the bare client makes.
    pub writers: usize,
    /// How many nodes the pods run on.
    pub nodes: usize,
}

impl Options {
    /// The options for which the goals apply: leases of 40 s that are renewed every 10 s, an outage of 50 s.
    pub fn new(binary: impl Into<PathBuf>, leases: usize) -> Self {
        Self {
            binary: binary.into(),
            leases,
            phases: Phase::ALL.into(),
            lease_duration: Duration::from_secs(40),
            renew_interval: Duration::from_secs(10),
            grace_period: Duration::from_secs(5),
            hold: Duration::from_mins(1),
            outage: Duration::from_secs(50),
            patience: Duration::from_mins(4),
            failovers: leases.min(50),
            writers: 24,
            nodes: 3.max(leases.div_ceil(500)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Phase;

    #[test]
    fn phases_are_found_by_name() {
        for phase in Phase::ALL {
            assert_eq!(phase.name().parse(), Ok(phase));
        }
        let error = "pause".parse::<Phase>().expect_err("no such phase");
        assert_eq!(error, "there is no phase pause; the phases are start, hold, restart, failover, outage, bare");
    }
}
