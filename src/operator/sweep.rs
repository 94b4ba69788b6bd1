//! Labels that outlived their lease: it was deleted while no operator ran.

use std::sync::Arc;
use std::time::Duration;

use super::House;
use super::kube_api::CallError;
use super::lease::removal_or;
use crate::api::names;
use crate::plan::PodFacts;

/// Between two tries.
const AGAIN: Duration = Duration::from_secs(5);

/// Takes label and token of leases that do not exist from every pod, once, until all are taken. Leases and pods have
/// been listed.
pub(super) async fn run(house: Arc<House>) {
    let work = async {
        while let Err(error) = sweep(&house).await {
            tracing::warn!(%error, "labels of deleted leases are not taken away yet");
            tokio::time::sleep(AGAIN).await;
        }
    };
    tokio::select! {
        () = house.stop.cancelled() => {}
        () = work => {}
    }
}

/// One pod that cannot be written keeps no other from it: the first failure is told at the end.
async fn sweep(house: &House) -> Result<(), CallError> {
    let mut swept = Ok(());
    for pod in house.pods.all() {
        for lease in orphans(&pod, |lease| house.directory.knows(&pod.namespace, lease)) {
            let patch = removal_or(&pod, &names::role_label(&lease), None, &names::token_annotation(&lease), None);
            match house.write_roles(&pod, &patch).await {
                Ok(()) | Err(CallError::NotFound) => {
                    tracing::info!(pod = %format!("{}/{}", pod.namespace, pod.name), %lease, "took away the label of a deleted lease");
                }
                Err(error) => swept = swept.and(Err(error)),
            }
        }
    }
    swept
}

/// The leases that a pod's labels and annotations speak of and that do not exist.
fn orphans(pod: &PodFacts, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let labels = pod.labels.keys().filter_map(|key| names::lease_of_role_label(key));
    let tokens = pod.annotations.keys().filter_map(|key| names::lease_of_token_annotation(key));
    let mut orphans: Vec<String> = labels.chain(tokens).filter(|lease| !exists(lease)).map(str::to_owned).collect();
    orphans.sort();
    orphans.dedup();
    orphans
}
