//! What a simple client needs for the same number of writes: it knows what to write, and does nothing else.

use std::time::{Duration, Instant};

use k8s_openapi::api::{core::v1::Pod, events::v1::Event};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{
    client::{self, failed},
    objects::leases,
    writes::Writes,
};
use crate::Result;

/// One lease and its writes.
struct Work {
    lease: DynamicObject,
    status: usize,
    roles: usize,
    events: usize,
}

/// Writes as much as `writes` says, spread over all leases, `at_once` calls at a time; returns how long it took.
///
/// # Errors
/// [`Error::Call`](crate::Error::Call) with the API server's refusal.
pub(super) async fn write(client: &Client, writes: Writes, at_once: usize) -> Result<Duration> {
    let listed = leases(client, None).list(&ListParams::default()).await;
    let listed = listed.map_err(|error| failed("list the leases", error))?.items;
    let count = listed.len();
    let work = listed.into_iter().enumerate().map(|(number, lease)| Work {
        lease,
        status: share(writes.status, count, number),
        roles: share(writes.roles, count, number),
        events: share(writes.events, count, number),
    });
    let began = Instant::now();
    client::for_each("leases written by the bare client", work.collect(), at_once, |work| one(client, work)).await?;
    Ok(began.elapsed())
}

/// The share of one of `count` leases in `total` writes.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of writes is a small whole number")]
fn share(total: f64, count: usize, number: usize) -> usize {
    let total = total as usize;
    total / count + usize::from(number < total % count)
}

async fn one(client: &Client, work: Work) -> Result<()> {
    let Work { mut lease, status, roles, events } = work;
    let (namespace, name) = (lease.namespace().unwrap_or_default(), lease.name_any());
    let leases = leases(client, Some(&namespace));
    for number in 0..status {
        lease.data["status"]["candidates"] = json!({"total": number + 2, "eligible": 1});
        lease.metadata.managed_fields = None;
        let written = leases.replace_status(&name, &PostParams::default(), &lease).await;
        lease = written.map_err(|error| failed(&format!("write the status of {name}"), error))?;
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let pod = lease.data["status"]["holder"]["pod"].as_str().map_or_else(|| format!("{name}-0"), str::to_owned);
    for number in 0..roles {
        let annotation = json!({"metadata": {"annotations": {"scale": number.to_string()}}});
        let patched = pods.patch_metadata(&pod, &PatchParams::default(), &Patch::Merge(&annotation)).await;
        patched.map_err(|error| failed(&format!("annotate pod {pod}"), error))?;
    }
    let all: Api<Event> = Api::namespaced(client.clone(), &namespace);
    for number in 0..events {
        let event = serde_json::from_value(json!({
            "metadata": {"name": format!("{name}.{number}"), "namespace": namespace},
            "action": "Measure",
            "eventTime": jiff::Timestamp::now().strftime("%FT%T%.6fZ").to_string(),
            "note": "Written by the bare client.",
            "reason": "Measured",
            "regarding": {"kind": "RedisLease", "name": name, "namespace": namespace},
            "reportingController": "redislease.io/scale",
            "reportingInstance": "scale",
            "type": "Normal",
        }));
        let event = event.map_err(|error| failed("form an event", error))?;
        all.create(&PostParams::default(), &event).await.map_err(|error| failed("create an event", error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn every_write_falls_to_one_lease() {
        for total in [0_u16, 1, 7, 20, 21] {
            let sum: usize = (0..7).map(|number| share(total.into(), 7, number)).sum();
            assert_eq!(sum, usize::from(total));
        }
    }
}
