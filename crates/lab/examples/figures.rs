//! What the operator costs and how fast it is, on this machine, in one run: `make figures`.
//!
//! Printed, not asserted: machines are shared, and a figure is to be read beside the others of its run.

use std::{
    env,
    io::BufReader,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use redislease_lab::{Error, Installation, InstallationOptions, LeaseState, Result, Tools};
use serde_json::{Value, json};

/// How many holders are deleted.
const HANDOVERS: usize = 50;
/// How many leases are held while writes are counted, and for how long.
const LEASES: usize = 100;
const HOLD: Duration = Duration::from_mins(5);

fn main() -> Result<()> {
    let binary = env::args_os().nth(1).unwrap_or_else(|| "target/debug/redislease".into());
    let options =
        InstallationOptions { quorum: json!({"maxLeaseDuration": "30s"}), ..InstallationOptions::new(binary) };
    let installation = Installation::start(&options)?;
    let operator = installation.start_operator("operator-0", &[])?;
    handovers(&installation)?;
    writes(&installation, &operator)
}

/// Objects of one kind as `kubectl --watch` shows them, each with when it was seen.
struct Watch {
    child: Child,
    events: Receiver<(Instant, Value)>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Watch {
    fn of(installation: &Installation, kind: &str, namespace: &str) -> Result<Self> {
        let io = |source| Error::Io { doing: "watch with kubectl".to_owned(), source };
        let mut child = Command::new(Tools::locate()?.kubectl)
            .arg(format!("--kubeconfig={}", installation.control_plane().kubeconfig().display()))
            .args(["get", kind, "-n", namespace, "--watch", "--output-watch-events", "-o", "json"])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(io)?;
        let (seen, events) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                let stream = serde_json::Deserializer::from_reader(BufReader::new(stdout)).into_iter::<Value>();
                for event in stream.map_while(std::result::Result::ok) {
                    if seen.send((Instant::now(), event)).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self { child, events })
    }

    /// The first event from now on that is as wanted.
    fn wait(&self, wanted: impl Fn(&Value) -> bool) -> Option<Instant> {
        loop {
            let (seen, event) = self.events.recv_timeout(Duration::from_secs(30)).ok()?;
            if wanted(&event) {
                return Some(seen);
            }
        }
    }
}

/// From the event that proves that the holder stopped to the event that names the next, as one watcher sees both.
fn handovers(installation: &Installation) -> Result<()> {
    installation.deployment("handover", "billing", 3)?;
    let lease = installation.lease("handover", "billing", &json!({"leaseDuration": "30s", "renewInterval": "5s"}))?;
    let mut held = lease.wait("held", Duration::from_mins(1), LeaseState::is_active)?;
    let (pods, leases) =
        (Watch::of(installation, "pods", "handover")?, Watch::of(installation, "redisleases", "handover")?);
    let mut took = Vec::with_capacity(HANDOVERS);
    for _ in 0..HANDOVERS {
        let pod = held.holder().unwrap_or_default().to_owned();
        installation.control_plane().kubectl(&["delete", "pod", "-n", "handover", &pod])?;
        let proven = pods.wait(|event| {
            let ended =
                ["Succeeded", "Failed"].contains(&event["object"]["status"]["phase"].as_str().unwrap_or_default());
            event["object"]["metadata"]["name"] == pod.as_str() && (ended || event["type"] == "DELETED")
        });
        let token = held.token();
        held = lease.wait("another holder", Duration::from_mins(1), |now| now.is_active() && now.token() > token)?;
        let named = leases.wait(|event| event["object"]["status"]["fencingToken"].as_u64() >= held.token());
        if let (Some(proven), Some(named)) = (proven, named) {
            took.push(named.saturating_duration_since(proven));
        }
        installation.control_plane().kubectl(&["rollout", "status", "deployment/billing", "-n", "handover"])?;
    }
    took.sort_unstable();
    let at = |percent: usize| took.get((took.len() * percent / 100).min(took.len().saturating_sub(1))).copied();
    println!(
        "proof that the holder stopped -> next holder in status, {} handovers: p50 {:?}, p99 {:?}, max {:?}",
        took.len(),
        at(50).unwrap_or_default(),
        at(99).unwrap_or_default(),
        took.last().copied().unwrap_or_default()
    );
    Ok(())
}

/// What is written to the API server while leases are merely held.
fn writes(installation: &Installation, operator: &redislease_lab::Operator) -> Result<()> {
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
        lease.wait("held", Duration::from_mins(2), LeaseState::is_active)?;
    }
    let page = || -> Result<Vec<(&str, f64)>> {
        let metrics = operator.metrics()?;
        let of = |kind| metrics.value("redislease_api_writes_total", &[("kind", kind)]).unwrap_or_default();
        Ok(["lease_status", "pod_role", "event", "quorum_status"].map(|kind| (kind, of(kind))).to_vec())
    };
    let renewals = || -> Result<f64> {
        Ok(operator.metrics()?.value("redislease_lease_renewals_total", &[("result", "success")]).unwrap_or_default())
    };
    // What belongs to the beginning has been written when nothing is written any more.
    let mut before = page()?;
    loop {
        thread::sleep(Duration::from_secs(3));
        let now = page()?;
        if now == before {
            break;
        }
        before = now;
    }
    let (renewed, began) = (renewals()?, Instant::now());
    while began.elapsed() < HOLD {
        thread::sleep(Duration::from_secs(1));
    }
    let after = page()?;
    print!("writes to the API server while {LEASES} leases were held for {} s:", began.elapsed().as_secs());
    for ((kind, before), (_, after)) in before.iter().zip(&after) {
        print!(" {kind} {}", after - before);
    }
    println!("; renewals meanwhile: {}", renewals()? - renewed);
    Ok(())
}
