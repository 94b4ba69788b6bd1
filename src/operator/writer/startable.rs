//! Reads the pods that a process may have started for a lease, or may start.

use std::sync::Arc;

use kube::api::ListParams;
use kube::{Api, Client};
use redislease_plan::api::names;
use redislease_plan::election::{Candidate, PodFacts, PodObject};
use redislease_plan::index::{Asked, ListCount};

use crate::operator::kube_api::{CallError, call};

/// How many pods one answer contains at most.
const PAGE: u32 = 500;

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
    let pods: Api<PodObject> = Api::namespaced(client, namespace);
    let waiting = ListParams::default().fields("spec.nodeName=,status.phase=Pending");
    let labelled = ListParams::default().labels(&names::role_label(lease));
    let mut found = Vec::new();
    for selection in [waiting, labelled] {
        let mut page = selection.limit(PAGE);
        loop {
            // Without a resource version, the API server answers with the newest state.
            let list = call(pods.list(&page)).await?;
            found.extend(list.items.iter().map(pod_candidate));
            match list.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => page = page.continue_token(&next),
                None => break,
            }
        }
    }
    Ok((asked, found))
}

pub(super) fn pod_candidate(pod: &PodObject) -> Candidate {
    Candidate::Pod(Arc::new(PodFacts::from(pod)))
}
