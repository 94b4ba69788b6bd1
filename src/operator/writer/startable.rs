//! Reads the pods that a process may have started for a lease, or may start.

use std::sync::Arc;

use kube::api::ListParams;
use kube::{Api, Client};
use redislease_plan::api::names;
use redislease_plan::election::{Candidate, PodFacts, PodObject};
use redislease_plan::index::{Asked, ListCount};

use crate::operator::kube_api::{CallError, call, each_page};

/// Lists the pods that wait for a node, then those that carry the label of the lease, as etcd has them now. A start removes the
/// scheduling gate and sets the label in one write: a pod that leaves the first list before it is read is in the second one.
///
/// # Errors
/// [`CallError`] of the first call that failed.
pub(super) async fn read(
    client: Client,
    lists: &ListCount,
    namespace: &str,
    lease: &str,
) -> Result<(Asked, Vec<Candidate>), CallError> {
    let asked = lists.ask();
    let pods: &Api<PodObject> = &Api::namespaced(client, namespace);
    let waiting = ListParams::default().fields("spec.nodeName=,status.phase=Pending");
    let labelled = ListParams::default().labels(&names::role_label(lease));
    let mut found = Vec::new();
    for selection in [waiting, labelled] {
        let list = |page| async move { call(pods.list(&page)).await };
        each_page(selection, list, |items| found.extend(items.iter().map(pod_candidate))).await?;
    }
    Ok((asked, found))
}

pub(super) fn pod_candidate(pod: &PodObject) -> Candidate {
    Candidate::Pod(Arc::new(PodFacts::from(pod)))
}
