//! Labels that outlived their lease: it was deleted while no operator ran, or cannot be read.

use std::sync::Arc;
use std::time::Duration;

use super::House;
use super::kube_api::CallError;
use super::lease::removal_or;
use super::pods::Known;
use crate::api::names::{self, PodRole};
use crate::election::PodFacts;

/// Between two tries.
const AGAIN: Duration = Duration::from_secs(5);

/// Takes label and token of leases that do not exist from every pod: once, until all are taken, and again when a lease
/// is gone that nobody could read. Leases and pods have been listed.
pub(super) async fn run(house: Arc<House>) {
    let work = async {
        loop {
            while let Err(error) = sweep(&house).await {
                tracing::warn!(%error, "labels of deleted leases are not taken away yet");
                tokio::time::sleep(AGAIN).await;
            }
            house.directory.unreadable_gone().await;
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
        for lease in orphans(&pod, |lease| house.directory.uid_of(&pod.namespace, lease).is_some()) {
            let (label, annotation) = (names::role_label(&lease), names::token_annotation(&lease));
            // As the last write left it.
            let Known::Here(now) = house.pods.find(&pod.namespace, &pod.uid) else { break };
            let pod = now.facts;
            let patch = if !house.directory.is_unreadable(&pod.namespace, &lease) {
                removal_or(&pod, &label, None, &annotation, None)
            } else if pod.labels.get(&label).is_some_and(|role| role == PodRole::Active.as_str()) {
                // Nobody here renews what nobody here can read: its holder must stop.
                let token = pod.annotations.get(&annotation).map(String::as_str);
                removal_or(&pod, &label, Some(PodRole::Standby.as_str()), &annotation, token)
            } else {
                continue;
            };
            match house.write_roles(&pod, &patch).await {
                Ok(()) | Err(CallError::NotFound) => {
                    tracing::info!(pod = %format!("{}/{}", pod.namespace, pod.name), %lease, "took away the label of a lease that is deleted or cannot be read");
                }
                Err(error) => swept = swept.and(Err(error)),
            }
        }
    }
    swept
}

/// The leases that a pod's labels and annotations speak of and that nobody here runs.
fn orphans(pod: &PodFacts, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let labels = pod.labels.keys().filter_map(|key| names::lease_of_role_label(key));
    let tokens = pod.annotations.keys().filter_map(|key| names::lease_of_token_annotation(key));
    let mut orphans: Vec<String> = labels.chain(tokens).filter(|lease| !exists(lease)).map(str::to_owned).collect();
    orphans.sort();
    orphans.dedup();
    orphans
}
