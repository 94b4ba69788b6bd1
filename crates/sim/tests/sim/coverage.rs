//! What was seen to happen over a batch of runs: a batch that was too tame proves nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::fault::{Fault, Phase};

/// Something that must happen sometimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sight {
    ReElection,
    JoinConfirmed,
    StalePublicationRefused,
    UnansweredPublicationWasWritten,
    UnansweredPublicationWasNotWritten,
    Superseded,
    Adopted,
    AdoptionNeverConfirmed,
    SealEffective,
    LostByMisses,
    LostByDeadline,
    ReleasedOnProof,
    ReAdmitted,
    SeededByOthers,
    SeededByClocks,
    SeedingRefused,
    StepSeen,
    VoteDiscardedAfterStep,
    LateAtTheNode,
    NotAdmittedAtTheNode,
    GhostGrant,
    RefusedByAPeer,
}

impl Sight {
    pub const ALL: [Self; 22] = [
        Self::ReElection,
        Self::JoinConfirmed,
        Self::StalePublicationRefused,
        Self::UnansweredPublicationWasWritten,
        Self::UnansweredPublicationWasNotWritten,
        Self::Superseded,
        Self::Adopted,
        Self::AdoptionNeverConfirmed,
        Self::SealEffective,
        Self::LostByMisses,
        Self::LostByDeadline,
        Self::ReleasedOnProof,
        Self::ReAdmitted,
        Self::SeededByOthers,
        Self::SeededByClocks,
        Self::SeedingRefused,
        Self::StepSeen,
        Self::VoteDiscardedAfterStep,
        Self::LateAtTheNode,
        Self::NotAdmittedAtTheNode,
        Self::GhostGrant,
        Self::RefusedByAPeer,
    ];
}

#[derive(Default)]
pub struct Coverage {
    hits: BTreeMap<(Fault, Phase), u64>,
    sights: BTreeMap<Sight, u64>,
}

impl Coverage {
    pub fn hit(&mut self, fault: Fault, phase: Phase) {
        *self.hits.entry((fault, phase)).or_default() += 1;
    }

    pub fn saw(&mut self, sight: Sight) {
        *self.sights.entry(sight).or_default() += 1;
    }

    pub fn add(&mut self, other: &Self) {
        for (&key, count) in &other.hits {
            *self.hits.entry(key).or_default() += count;
        }
        for (&key, count) in &other.sights {
            *self.sights.entry(key).or_default() += count;
        }
    }

    /// What never happened.
    pub fn missing(&self) -> Vec<String> {
        let cells = Fault::ALL.iter().flat_map(|&fault| Phase::ALL.map(|phase| (fault, phase)));
        let cells = cells.filter(|cell| !self.hits.contains_key(cell)).map(|cell| format!("{cell:?}"));
        let sights = Sight::ALL.iter().filter(|sight| !self.sights.contains_key(sight));
        cells.chain(sights.map(|sight| format!("{sight:?}"))).collect()
    }

    pub fn table(&self) -> String {
        let mut text = String::from("fault          ");
        for phase in Phase::ALL {
            let _ = write!(text, "{:>12}", format!("{phase:?}"));
        }
        for fault in Fault::ALL {
            let _ = write!(text, "\n{:<15}", format!("{fault:?}"));
            for phase in Phase::ALL {
                let _ = write!(text, "{:>12}", self.hits.get(&(fault, phase)).copied().unwrap_or(0));
            }
        }
        for sight in Sight::ALL {
            let _ = write!(text, "\n{:<36}{:>9}", format!("{sight:?}"), self.sights.get(&sight).copied().unwrap_or(0));
        }
        text
    }
}
