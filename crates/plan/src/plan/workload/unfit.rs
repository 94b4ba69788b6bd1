//! A workload whose lease has a spec that does not fit the quorum, after a restart of the operator.
//!
//! An earlier spec, which this process has not read, may name another workload. But most edits change only durations, and an edit of the
//! quorum changes no lease: if the term is that of the workload, it must be stopped when the term is lost.

use super::heir::{is_made_for, owner_of};
use crate::api::names;
use crate::plan::Facts;
use crate::plan::recorded::Recorded;

/// Whether the spec has never fitted the quorum, and nothing shows that the term, or the last one, is that of the candidate.
pub fn is_unproven(facts: &Facts) -> bool {
    if !facts.spec.is_unfit {
        return false;
    }
    let (Some(lease), Some(workload)) = (&facts.lease, facts.workload()) else { return true };
    let Some(term) = Recorded::of(lease) else {
        let [name, uid] = [&lease.metadata.name, &lease.metadata.uid].map(|text| text.as_deref().unwrap_or_default());
        return workload.annotations.get(&names::owner_annotation(name)) != Some(&owner_of(uid, workload));
    };
    let is_heir = is_made_for(lease, workload) && term.pod() == workload.name;
    term.pod_uid() != workload.uid && !is_heir
}
