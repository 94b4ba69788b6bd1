//! Hundreds of leases that a cluster holds: what must stop is stopped in time when all of them are lost at once.

use std::time::{Duration, Instant};

use redislease_lab::{InstallationOptions, LeaseState, Operator, Result, pause, resume};
use serde_json::{Value, json};

use crate::annotations::{quorum_is_ready, workload};
use crate::granularity::switching;
use crate::support::{Cluster, FIRST_ELECTION, installation};

const LEASES: u32 = 300;
const NAMESPACE: &str = "many-workloads";
/// Limit until all are active: a debug build beside other tests.
const ALL_ACTIVE: Duration = Duration::from_mins(2);
/// From the last renewal until another cluster may hold a lease.
const LEASE: Duration = Duration::from_secs(30);

fn objects(number: u32) -> [Value; 2] {
    let name = format!("workload-{number}");
    let annotations = json!({"redislease.io/activated-by": name});
    let over = json!({"metadata": {"annotations": annotations}, "spec": {"replicas": 0}});
    let deployment = redislease_lab::workload("Deployment", NAMESPACE, &name, &over);
    let lease = json!({
        "apiVersion": "redislease.io/v1alpha1",
        "kind": "RedisLease",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "leaseDuration": "30s",
            "renewInterval": "5s",
            "gracePeriod": "10s",
            "granularity": "Cluster",
            "candidates": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
            "activation": {"scale": {"replicas": 3}},
        },
    });
    [deployment, lease]
}

#[test]
#[ignore = "it slows down the tests beside it: make nightly runs it alone"]
fn three_hundred_workloads_stop_before_another_cluster_may_start_them() -> Result<()> {
    let Cluster { operator, installation } =
        Cluster::with_own_redis(&InstallationOptions { quorum: json!({"maxLeaseDuration": "30s"}), ..switching() })?;
    // It takes long to remove hundreds of workloads.
    installation.control_plane().not_again();
    installation.namespace(NAMESPACE)?;
    installation.apply(
        &json!({"apiVersion": "v1", "kind": "List", "items": (0..LEASES).flat_map(objects).collect::<Value>()}),
    )?;
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments");
    let all_have = |replicas: u32| {
        let list = installation.control_plane().get(&path)?.unwrap_or_default();
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let of_them = items.iter().filter(|item| item["spec"]["replicas"] == replicas).count();
        if of_them == LEASES as usize { Ok(()) } else { Err(format!("{of_them} of {LEASES} have {replicas} replicas")) }
    };
    installation.wait_for("all workloads run", ALL_ACTIVE, || all_have(3))?;

    let stopped = Instant::now();
    pause(installation.redis())?;
    // The last renewal was before the pause.
    installation.wait_for("all workloads are stopped", LEASE, || all_have(0))?;
    println!("all {LEASES} workloads were stopped {:.1?} after the Redis servers", stopped.elapsed());

    resume(installation.redis())?;
    let resumed = Instant::now();
    installation.wait_for("all workloads run again", ALL_ACTIVE, || all_have(3))?;
    println!("all {LEASES} workloads ran {:.1?} after the Redis servers", resumed.elapsed());
    operator.stop().map(drop)
}

/// The resident memory of an operator, in MB.
fn memory(operator: &Operator) -> Result<f64> {
    Ok(operator.metrics()?.value("process_resident_memory_bytes", &[]).unwrap_or_default() / 1e6)
}

#[test]
#[ignore = "takes minutes: make nightly"]
fn ten_thousand_workloads_use_little_memory() -> Result<()> {
    let installation = &installation()?;
    let namespace = "many";
    let cluster = installation.control_plane();
    cluster.kubectl(&["create", "namespace", namespace])?;
    let create = |part: usize| {
        let items: Vec<Value> = (part * 2500..(part + 1) * 2500)
            .map(|number| {
                let mut item = workload("CronJob", namespace, &format!("job-{number}"));
                item["metadata"]["annotations"] =
                    if number % 10 == 0 { json!({"redislease.io/lease": "false"}) } else { Value::Null };
                item
            })
            .collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        cluster.kubectl_with_input(&["create", "--filename=-", "--validate=false", "--output=name"], &list).map(drop)
    };
    std::thread::scope(|scope| {
        let create = &create;
        let parts: Vec<_> = (0..4).map(|part| scope.spawn(move || create(part))).collect();
        parts.into_iter().try_for_each(|part| part.join().expect("it does not panic"))
    })?;
    let without = installation.start_operator("operator-0", &["--annotations=false"])?;
    without.wait_ready()?;
    quorum_is_ready(installation)?;
    let before = memory(&without)?;
    without.stop()?;
    let with = installation.start_operator("operator-1", &[])?;
    with.wait_ready()?;
    installation.apply(&workload("Deployment", namespace, "web"))?;
    let lease = installation.find_lease(namespace, "web");
    lease.wait("active", FIRST_ELECTION * 2, LeaseState::is_active)?;
    let after = memory(&with)?;
    println!(
        "10,000 CronJobs, 1,000 of them with annotations: {before:.1} MB without the feature, {after:.1} MB with it"
    );
    assert!(after - before < 40.0);
    Ok(())
}
