//! The calls that create, change and delete the leases of annotated workloads.

use redislease_plan::annotations::decide::{Change, is_unwanted};
use redislease_plan::annotations::facts::{LeaseFacts, WorkloadFacts};
use std::sync::Arc;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use redislease_plan::api::RedisLease;
use redislease_plan::index::WorkloadKey;
use redislease_plan::plan::calls::Changed;

use crate::operator::kube_api::{self, CallError, call};

/// Makes a change.
///
/// # Errors
/// [`CallError`].
pub(super) async fn make(client: Client, change: Change) -> Result<Changed<Arc<RedisLease>>, CallError> {
    match change {
        Change::Create(lease) => create(client, &lease).await,
        Change::Patch { namespace, name, patch } => {
            let leases: Api<RedisLease> = Api::namespaced(client, &namespace);
            let written = call(leases.patch(&name, &PatchParams::default(), &Patch::Merge(patch))).await;
            written.map(|lease| Changed::Written(Arc::new(lease)))
        }
        Change::Delete { workload, lease } => delete(client, &workload, &lease).await,
    }
}

async fn create(client: Client, lease: &RedisLease) -> Result<Changed<Arc<RedisLease>>, CallError> {
    let leases: Api<RedisLease> = Api::namespaced(client, &lease.namespace().unwrap_or_default());
    match call(leases.create(&PostParams::default(), lease)).await {
        Ok(lease) => Ok(Changed::Written(Arc::new(lease))),
        Err(CallError::Conflict) => {
            let found = call(leases.get(&lease.name_any())).await?;
            Ok(Changed::Exists(Arc::new(found)))
        }
        // The namespace is being deleted or does not exist.
        Err(CallError::NotFound) => Ok(Changed::Outdated),
        Err(error) => Err(error),
    }
}

/// Deletes a lease if a fresh read shows that its workload does not request it any more: the watch of workloads may lag
/// behind the watch of leases.
async fn delete(client: Client, key: &WorkloadKey, lease: &LeaseFacts) -> Result<Changed<Arc<RedisLease>>, CallError> {
    let workload = match metadata(client.clone(), key).await {
        Ok(workload) => Some(workload),
        Err(CallError::NotFound) => None,
        Err(error) => return Err(error),
    };
    if !is_unwanted(workload.as_ref(), lease) {
        return Ok(Changed::Outdated);
    }
    let leases: Api<RedisLease> = Api::namespaced(client, &lease.namespace);
    let preconditions = Preconditions { uid: Some(lease.uid.clone()), resource_version: lease.version.clone() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    call(leases.delete(&lease.name, &params)).await.map(|_| Changed::Deleted(lease.uid.clone()))
}

async fn metadata(client: Client, (namespace, workload): &WorkloadKey) -> Result<WorkloadFacts, CallError> {
    let workloads = kube_api::workloads(client, namespace, workload.kind);
    let object = call(workloads.get_metadata(&workload.name)).await?;
    Ok(WorkloadFacts::of(workload.kind, object.metadata))
}
