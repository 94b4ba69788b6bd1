//! Decides about one workload and its lease.

use crate::api::lease::ActivationSpec;
use crate::api::names::{ANNOTATION_PREFIX, CREATED_FOR_ANNOTATION, MANAGED_BY, MANAGED_BY_LABEL};
use crate::api::validated::Workload;
use crate::api::{RedisLease, RedisLeaseSpec};
use crate::index::WorkloadKey;
use crate::status::NoticeReason;
use serde_json::{Value, json};

use super::facts::{LeaseFacts, WorkloadFacts, title};
use super::parse::{Desired, Parsed, Request, parse};
use super::problem::Problem;

/// One change of a lease.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub enum Change {
    /// Create it.
    Create(Box<RedisLease>),
    /// Change it with a merge patch, which names its UID and resourceVersion.
    Patch {
        /// The lease's namespace.
        namespace: String,
        name: String,
        /// The merge patch.
        patch: Value,
    },
    /// Delete it if a fresh read of the workload confirms that the workload does not request it; see [`is_unwanted`].
    Delete {
        /// The workload for which it was created.
        workload: WorkloadKey,
        lease: Box<LeaseFacts>,
    },
}

/// The result of a decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The next change, and the quorum whose leader may make it.
    pub change: Option<(String, Change)>,
    /// The problems to report, and the quorum whose leader reports them.
    pub problems: Vec<(String, Problem)>,
}

/// Decides about a workload. `created` are the leases that this operator created for a workload of this kind and name;
/// `named` finds the lease of a name among all leases that it created in the namespace.
pub fn decide<'a>(
    key: &WorkloadKey,
    workload: Option<&WorkloadFacts>,
    created: &[&'a LeaseFacts],
    named: impl Fn(&str) -> Option<&'a LeaseFacts>,
) -> Decision {
    let Some(workload) = workload else {
        // It has no annotation, or it does not exist. The fresh read before the deletion tells which.
        let owned = created.iter().find(|lease| lease.controller.is_some() && !lease.deleting);
        return Decision { change: owned.map(|lease| delete(key, lease)), problems: Vec::new() };
    };
    if workload.deleting {
        // The garbage collector deletes the lease.
        return Decision::default();
    }
    let Parsed { request, problems, quorum } = parse(workload);
    let mut decision =
        Decision { change: None, problems: problems.into_iter().map(|problem| (quorum.clone(), problem)).collect() };
    let owned = |wanted: &str| {
        let mut owned = created.iter().filter(|lease| lease.is_owned_by(workload) && !lease.deleting);
        owned.find(|lease| lease.name != wanted)
    };
    match request {
        Request::Invalid => {}
        Request::None => decision.change = owned("").map(|lease| delete(key, lease)),
        Request::Lease(desired) => match apply(workload, &desired, named(&desired.name)) {
            Next::Change(change) => decision.change = Some((quorum, change)),
            Next::Report(problem) => decision.problems.push((quorum, problem)),
            Next::Wait => {}
            // A lease under an earlier name is deleted after the new one exists.
            Next::Done => decision.change = owned(&desired.name).map(|lease| delete(key, lease)),
        },
    }
    decision
}

enum Next {
    Done,
    Wait,
    Change(Change),
    Report(Problem),
}

fn apply(workload: &WorkloadFacts, desired: &Desired, lease: Option<&LeaseFacts>) -> Next {
    let Some(lease) = lease else { return Next::Change(Change::Create(Box::new(object(workload, desired)))) };
    if lease.deleting {
        return Next::Wait;
    }
    if !lease.is_created_for(&workload.key.1) {
        return Next::Report(taken(workload, lease));
    }
    let adopts = match &lease.controller {
        Some(owner) if *owner == workload.uid => false,
        // The garbage collector deletes the lease of an earlier workload with this name.
        Some(_) => return Next::Wait,
        // Its earlier workload was deleted with `--cascade=orphan`.
        None if lease.has_owner => return Next::Report(taken(workload, lease)),
        None => true,
    };
    if lease.spec.quorum_ref.name != desired.spec.quorum_ref.name {
        return Next::Report(quorum_changed(desired, lease));
    }
    if lease.spec == desired.spec && !adopts {
        return Next::Done;
    }
    Next::Change(patch(workload, desired, lease, adopts))
}

/// Whether a workload, as just read, does not request this lease any more. `None`: it does not exist, and the garbage
/// collector deletes its leases.
pub fn is_unwanted(workload: Option<&WorkloadFacts>, lease: &LeaseFacts) -> bool {
    let Some(workload) = workload.filter(|workload| !workload.deleting && lease.is_owned_by(workload)) else {
        return false;
    };
    match parse(workload).request {
        Request::None => true,
        Request::Lease(desired) => desired.name != lease.name,
        Request::Invalid => false,
    }
}

/// The problem with a lease of the desired name that exists although no created lease of this name is known. `None` if it
/// is one that this operator created, and the watch will show it.
pub fn judge_existing(workload: &WorkloadFacts, lease: &LeaseFacts) -> Option<Problem> {
    lease.workload().is_none().then(|| taken(workload, lease))
}

/// The API server refused to create, change or delete the lease of a workload.
pub fn refused(workload: &Workload, why: &str) -> Problem {
    let note = format!("The lease of {} could not be written; the operator tries again: {why}", title(workload));
    Problem { reason: NoticeReason::LeaseNotWritten, note }
}

/// The lease of a workload does not stay as it was written.
pub fn changed_back(workload: &Workload) -> Problem {
    let note = format!(
        "The lease of {} was written several times, and another client or an admission policy changes it or deletes it each \
         time. Use the annotations of the workload to change or delete it.",
        title(workload)
    );
    Problem { reason: NoticeReason::LeaseNotWritten, note }
}

fn taken(workload: &WorkloadFacts, lease: &LeaseFacts) -> Problem {
    let found = match &lease.created_for {
        Some(other) if *other != title(&workload.key.1) => format!("belongs to {other}"),
        Some(_) => "has another owner".to_owned(),
        None => "was not created from an annotation".to_owned(),
    };
    let note = format!(
        "RedisLease {}/{} {found}, so the operator does not change it: use another name in {ANNOTATION_PREFIX}lease, or \
         delete that RedisLease.",
        lease.namespace, lease.name
    );
    Problem { reason: NoticeReason::LeaseNameTaken, note }
}

fn quorum_changed(desired: &Desired, lease: &LeaseFacts) -> Problem {
    let note = format!(
        "Annotation {ANNOTATION_PREFIX}quorum is {:?} and must stay {:?}, because the quorum of a lease cannot be changed. In each \
         cluster that shares it, set spec.suspend of RedisLease {}/{} to true, wait one lease duration until its holder has stopped, \
         remove {ANNOTATION_PREFIX}lease, and wait until the RedisLease is deleted. Then add the annotation again.",
        desired.spec.quorum_ref.name, lease.spec.quorum_ref.name, lease.namespace, lease.name
    );
    Problem { reason: NoticeReason::InvalidAnnotation, note }
}

fn delete(workload: &WorkloadKey, lease: &LeaseFacts) -> (String, Change) {
    (lease.spec.quorum_ref.name.clone(), Change::Delete { workload: workload.clone(), lease: Box::new(lease.clone()) })
}

/// The lease to create. `blockOwnerDeletion` stays false: setting it needs a right on the finalizers of the workload where
/// the admission plugin `OwnerReferencesPermissionEnforcement` runs, and the deletion of a workload need not wait.
fn object(workload: &WorkloadFacts, desired: &Desired) -> RedisLease {
    let mut lease = RedisLease::new(&desired.name, desired.spec.clone());
    let metadata = &mut lease.metadata;
    metadata.namespace = Some(workload.key.0.to_string());
    metadata.labels = Some([(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned())].into());
    metadata.annotations = Some([(CREATED_FOR_ANNOTATION.to_owned(), title(&workload.key.1))].into());
    metadata.owner_references = serde_json::from_value(json!([owner(workload)])).ok();
    lease
}

fn owner(workload: &WorkloadFacts) -> Value {
    let Workload { kind, name } = &workload.key.1;
    json!({
        "apiVersion": kind.api_version(),
        "kind": kind.as_str(),
        "name": name,
        "uid": workload.uid,
        "controller": true,
    })
}

fn patch(workload: &WorkloadFacts, desired: &Desired, lease: &LeaseFacts, adopts: bool) -> Change {
    let RedisLeaseSpec { candidates, lease_duration, renew_interval, grace_period, granularity, activation, .. } =
        &desired.spec;
    let mut metadata = json!({"uid": lease.uid, "resourceVersion": lease.version});
    if adopts {
        metadata["ownerReferences"] = json!([owner(workload)]);
    }
    let patch = json!({
        "metadata": metadata,
        "spec": {
            "candidates": {"selector": null, "workloadRef": candidates.workload_ref},
            "leaseDuration": lease_duration,
            "renewInterval": renew_interval,
            "gracePeriod": grace_period,
            "granularity": granularity,
            // Each field is named: the patch would leave others as they are.
            "activation": activation.map(|ActivationSpec { scheduling_gate, scale, suspend }| {
                json!({"schedulingGate": scheduling_gate, "scale": scale, "suspend": suspend})
            }),
        },
    });
    Change::Patch { namespace: lease.namespace.to_string(), name: lease.name.clone(), patch }
}
