//! Measures the operator's cost and speed on this machine in one run: `make figures`.
//!
//! The figures are printed, not asserted: machines are shared, and a figure is only comparable with the others of its
//! run. A measurement that fails ends the run, because omitting it would improve the rest.

use std::{
    collections::BTreeMap,
    env, thread,
    time::{Duration, Instant},
};

use redislease_lab::{
    Deadline, Error, Installation, InstallationOptions, Lease, LeaseState, Operator, Percentiles, Result, Watch,
    WatchEvent,
};
use serde_json::json;

/// The number of holders that are deleted.
const HANDOVERS: usize = 50;
/// The number of leases held while writes are counted, and the duration.
const LEASES: usize = 100;
const HOLD: Duration = Duration::from_mins(5);
/// The grace period of the lab's leases plus 1 s.
const STOP_BUDGET: Duration = Duration::from_secs(4);
/// When no write arrives for this time, all writes of the start are complete.
const SILENCE: Duration = Duration::from_secs(3);
/// The timeout of a step, which ends the run.
const PATIENCE: Duration = Duration::from_mins(2);

fn main() -> Result<()> {
    let binary = env::args_os().nth(1).unwrap_or_else(|| "target/debug/redislease".into());
    let options =
        InstallationOptions { quorum: json!({"maxLeaseDuration": "30s"}), ..InstallationOptions::new(binary) };
    let installation = Installation::start(&options)?;
    let operator = installation.start_operator("operator-0", &[])?;
    handovers(&installation)?;
    let leases = hold(&installation)?;
    writes(&operator)?;
    losses(&installation, &operator, &leases)
}

/// The time from the event that proves that the holder stopped to the event with the next holder, as one watcher receives
/// them.
fn handovers(installation: &Installation) -> Result<()> {
    let control_plane = installation.control_plane();
    installation.deployment("handover", "billing", 3)?;
    let lease = installation.lease("handover", "billing", &json!({"leaseDuration": "30s", "renewInterval": "5s"}))?;
    let mut held = lease.wait("held", PATIENCE, LeaseState::is_active)?;
    let (mut pods, mut leases) =
        (control_plane.watch("pods", "handover")?, control_plane.watch("redisleases", "handover")?);
    let mut took = Vec::with_capacity(HANDOVERS);
    for _ in 0..HANDOVERS {
        let pod = held.holder().unwrap_or_default().to_owned();
        control_plane.kubectl(&["delete", "pod", "-n", "handover", &pod])?;
        let proven = pods.wait("the holder has stopped", PATIENCE, |WatchEvent { kind, object, .. }| {
            let phase = object["status"]["phase"].as_str().unwrap_or_default();
            let ended = kind == "DELETED" || ["Succeeded", "Failed"].contains(&phase);
            object["metadata"]["name"] == pod.as_str() && ended
        })?;
        let token = held.token();
        held = lease.wait("another holder", PATIENCE, |now| now.is_active() && now.token() > token)?;
        let named = leases.wait("the next holder is named", PATIENCE, |event| {
            event.object["status"]["fencingToken"].as_u64() >= held.token()
        })?;
        took.push(named.at.saturating_duration_since(proven.at));
        control_plane.kubectl(&["rollout", "status", "deployment/billing", "-n", "handover"])?;
    }
    if let Some(percentiles) = Percentiles::of(took) {
        println!("proof that the holder stopped -> next holder in status, {HANDOVERS} handovers: {percentiles}");
    }
    Ok(())
}

/// Creates many leases and waits until all are held.
fn hold(installation: &Installation) -> Result<Vec<Lease<'_>>> {
    installation.deployment("many", "workers", 3)?;
    let mut leases = Vec::with_capacity(LEASES);
    for index in 0..LEASES {
        let spec = json!({
            "candidates": {"selector": {"matchLabels": {"app": "workers"}}},
            "leaseDuration": "30s",
            "renewInterval": "5s",
        });
        leases.push(installation.lease("many", &format!("lease-{index}"), &spec)?);
    }
    for lease in &leases {
        lease.wait("held", PATIENCE, LeaseState::is_active)?;
    }
    Ok(leases)
}

/// Counts the writes to the API server while leases are only held.
fn writes(operator: &Operator) -> Result<()> {
    let page = || -> Result<Vec<(&str, f64)>> {
        let metrics = operator.metrics()?;
        let of = |kind| metrics.value("redislease_api_writes_total", &[("kind", kind)]).unwrap_or_default();
        Ok(["lease_status", "pod_role", "event", "quorum_status"].map(|kind| (kind, of(kind))).to_vec())
    };
    let renewals = || -> Result<f64> {
        Ok(operator.metrics()?.value("redislease_lease_renewals_total", &[("result", "success")]).unwrap_or_default())
    };
    // The writes of the start are complete when no more arrive for a while.
    let (mut before, mut since, deadline) = (page()?, Instant::now(), Instant::now() + PATIENCE);
    while since.elapsed() < SILENCE {
        if Instant::now() >= deadline {
            let (process, last) = ("the operator without writes".to_owned(), format!("{before:?}"));
            return Err(Error::NotReady { process, waited: PATIENCE, last, log: String::new() });
        }
        thread::sleep(Duration::from_millis(500));
        let now = page()?;
        if now != before {
            (before, since) = (now, Instant::now());
        }
    }
    let (renewed, began) = (renewals()?, Instant::now());
    // The duration that is measured.
    thread::sleep(HOLD);
    let after = page()?;
    print!("writes to the API server while {LEASES} leases were held for {} s:", began.elapsed().as_secs());
    for ((kind, before), (_, after)) in before.iter().zip(&after) {
        print!(" {kind} {}", after - before);
    }
    println!("; renewals meanwhile: {}", renewals()? - renewed);
    Ok(())
}

/// The time from the death of a majority of the nodes to Active=False in status, compared with `stop_at` and the earliest
/// time of another holder.
fn losses(installation: &Installation, operator: &Operator, leases: &[Lease<'_>]) -> Result<()> {
    let mut watch = installation.control_plane().watch("redisleases", "many")?;
    let killed = Instant::now();
    for redis in &installation.redis()[1..] {
        redis.process().kill()?;
    }
    let page = operator.metrics()?;
    let mut awaited = BTreeMap::new();
    for lease in leases {
        let [_, (_, name)] = lease.labels();
        let none = || Error::Answer { url: "/metrics".to_owned(), message: format!("no term of {name} runs") };
        awaited.insert(name, page.deadline(lease, STOP_BUDGET).ok_or_else(none)?);
    }
    let (mut took, mut late) = (Vec::new(), Vec::new());
    while !awaited.is_empty() {
        let (deadline, at) = next_loss(&mut watch, &mut awaited)?;
        took.push(at.saturating_duration_since(killed));
        late.push(deadline.late(at));
    }
    late.sort_by(f64::total_cmp);
    if let (Some(percentiles), [earliest, .., latest]) = (Percentiles::of(took), late.as_slice()) {
        println!(
            "two of three nodes killed -> Active=False in status, {LEASES} leases: {percentiles}; {:.1} to {:.1} ms after \
             stop_at, at least {:.2} s before valid_until",
            earliest * 1e3,
            latest * 1e3,
            STOP_BUDGET.as_secs_f64() - latest,
        );
    }
    Ok(())
}

/// The next of the expected leases that becomes inactive, and the time of the event.
fn next_loss(watch: &mut Watch, awaited: &mut BTreeMap<&str, Deadline>) -> Result<(Deadline, Instant)> {
    let is_lost = |event: &WatchEvent| {
        let conditions = event.object["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|one| one["type"] == "Active" && one["status"] == "False")
    };
    let name = |event: &WatchEvent| event.object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    loop {
        let event = watch.wait("a lease is declared lost", PATIENCE, is_lost)?;
        if let Some(deadline) = awaited.remove(name(&event).as_str()) {
            return Ok((deadline, event.at));
        }
    }
}
