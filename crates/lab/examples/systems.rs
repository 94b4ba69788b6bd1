//! Compares leader elections as whole systems in one run: `make bench-systems`.
//!
//! Each system has a lease of 15 s. Measured are: the time from the moment at which the leader ends to the moment at which
//! the next one leads, and what a held lease costs while nothing happens. The results are printed, and written as JSON
//! together with the header, a JSON object that says what is measured: date, commit, machine. A measurement that fails
//! ends the run.
//!
//! ```text
//! systems OPERATOR-BINARY CANDIDATE-BINARY RESULTS.json HEADER [quick]
//! ```
//! `quick` ends few leaders, to see that the comparison works.

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use redislease_lab::{
    ControlPlane, Installation, InstallationOptions, LeaseState, Numbers, Percentiles, Process, Tools, Usage,
    WatchEvent, free_address, poll, unix_time,
};
use serde_json::{Value, json};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// How much is measured.
#[derive(Clone, Copy)]
struct Amount {
    releases: usize,
    /// Of RedisLease, whose p99 has a goal. A release takes it less time than the others.
    own_releases: usize,
    crashes: usize,
    /// How long a lease is only held while its cost is measured.
    hold: Duration,
}

const FULL: Amount = Amount { releases: 20, own_releases: 50, crashes: 3, hold: Duration::from_mins(1) };
const QUICK: Amount = Amount { releases: 2, own_releases: 2, crashes: 1, hold: Duration::from_secs(5) };
/// The longest wait before a leader is ended. client-go tries after 2 s times a random number from 1 to 2.2: without a wait
/// a leader would always be ended just after a failed try, and the next one would lead later than on average.
const LONGEST_WAIT: Duration = Duration::from_millis(4400);
/// The waits are the same for all systems and in all runs.
const SEED: u64 = 20_261_123;
/// Between two renewals: the `RetryPeriod` of the candidates of client-go, and `renewInterval` of RedisLease.
const RENEW_INTERVAL: Duration = Duration::from_secs(2);
/// When no write arrives for this time, all writes of the start are complete.
const SILENCE: Duration = Duration::from_secs(5);
/// The timeout of a step, which ends the run.
const PATIENCE: Duration = Duration::from_mins(2);

fn main() -> Outcome {
    let mut args = env::args_os().skip(1).map(PathBuf::from);
    let (Some(binary), Some(candidate), Some(results), Some(header)) =
        (args.next(), args.next(), args.next(), args.next())
    else {
        return Err("usage: systems OPERATOR-BINARY CANDIDATE-BINARY RESULTS.json HEADER [quick]".into());
    };
    let header: Value = serde_json::from_str(&header.display().to_string())?;
    let amount = match args.next() {
        Some(quick) if quick == Path::new("quick") => QUICK,
        Some(other) => return Err(format!("{} is not `quick`", other.display()).into()),
        None => FULL,
    };
    let options =
        InstallationOptions { quorum: json!({"maxLeaseDuration": "30s"}), ..InstallationOptions::new(binary) };
    let installation = Installation::start(&options)?;
    let folder = tempfile::tempdir()?;
    let etcd = start_etcd(folder.path())?;
    let kubeconfig = installation.control_plane().kubeconfig().display().to_string();
    let systems = [
        measure(
            &Candidates { binary: &candidate, system: "client-go", place: &kubeconfig, folder: folder.path() },
            amount,
        )?,
        measure(&Candidates { binary: &candidate, system: "etcd", place: &etcd.1, folder: folder.path() }, amount)?,
        redislease(&installation, amount)?,
    ];
    drop(etcd);
    if let Some(parent) = results.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(&results, serde_json::to_string_pretty(&json!({"measured": header, "systems": systems}))?)?;
    Ok(())
}

/// An etcd of its own, and its address.
fn start_etcd(folder: &Path) -> Outcome<(Process, String)> {
    let address = format!("http://{}", free_address()?);
    let flag = |name: &str, value: &str| format!("--{name}={value}");
    let etcd = Process::new("etcd", Tools::locate()?.etcd, folder.join("etcd.log")).args([
        flag("data-dir", &folder.join("etcd").display().to_string()),
        flag("listen-client-urls", &address),
        flag("advertise-client-urls", &address),
        flag("listen-peer-urls", "http://127.0.0.1:0"),
        flag("log-level", "warn"),
    ]);
    etcd.start()?;
    Ok((etcd, address))
}

/// How the candidates of one system are started.
struct Candidates<'a> {
    binary: &'a Path,
    system: &'a str,
    /// A kubeconfig, or the endpoint of etcd.
    place: &'a str,
    folder: &'a Path,
}

/// One candidate. It appends its events to its log.
struct Candidate {
    process: Process,
}

impl Candidates<'_> {
    fn start(&self, number: usize) -> Outcome<Candidate> {
        let identity = format!("candidate-{number}");
        let log = self.folder.join(format!("{}-{identity}.log", self.system));
        let process =
            Process::new(&identity, self.binary, log).args([self.system, &identity, self.place, "comparison"]);
        process.start()?;
        Ok(Candidate { process })
    }
}

impl Candidate {
    /// Waits for an event. Events of a candidate are printed at most once.
    fn wait(&self, event: &str) -> Outcome<Value> {
        Ok(poll(PATIENCE, || {
            let log = fs::read_to_string(self.process.log()).unwrap_or_default();
            let mut events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            events.find(|line| line["event"] == event).ok_or_else(|| format!("no event {event:?} in: {log}"))
        })?)
    }

    /// Its requests that write, and its others, until now.
    fn requests(&self) -> Outcome<[f64; 2]> {
        let log = fs::read_to_string(self.process.log())?;
        let last = log.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok()).unwrap_or_default();
        Ok([last["writes"].as_f64().unwrap_or_default(), last["reads"].as_f64().unwrap_or_default()])
    }

    fn memory_mb(&self) -> Outcome<f64> {
        resident_mb(self.process.pid().ok_or("the candidate has ended")?)
    }
}

/// The resident memory of a process.
fn resident_mb(pid: u32) -> Outcome<f64> {
    Ok(f64::from(u32::try_from(Usage::of(pid)?.memory / 1024)?) / 1024.0)
}

/// The time of an event.
fn at(event: &Value) -> Outcome<Duration> {
    Ok(Duration::from_nanos(event["at_ns"].as_u64().ok_or("the event has no time")?))
}

/// A random wait from zero to [`LONGEST_WAIT`].
fn wait(random: &mut Numbers) {
    // The upper 32 bits as a fraction of one.
    thread::sleep(LONGEST_WAIT.mul_f64(f64::from((random.draw() >> 32) as u32) / f64::from(u32::MAX)));
}

/// A system whose candidates are processes that elect a leader among themselves.
fn measure(candidates: &Candidates<'_>, amount: Amount) -> Outcome<Value> {
    let mut random = Numbers(SEED);
    let mut leader = candidates.start(0)?;
    leader.wait("leads")?;
    let mut released = Vec::new();
    let mut crashed = Vec::new();
    let mut held = Value::Null;
    for number in 1..=amount.releases + amount.crashes {
        let next = candidates.start(number)?;
        next.wait("stands by")?;
        if number == 1 {
            held = holding(&leader, &next, amount.hold)?;
        }
        wait(&mut random);
        let ended = unix_time();
        if number <= amount.releases {
            leader.process.terminate(PATIENCE)?;
        } else {
            leader.process.kill()?;
        }
        let led = at(&next.wait("leads")?)?.saturating_sub(ended);
        if number <= amount.releases { &mut released } else { &mut crashed }.push(led);
        leader = next;
    }
    report(candidates.system, released, crashed, &held)
}

/// What two candidates cost while one leads.
fn holding(leader: &Candidate, standby: &Candidate, hold: Duration) -> Outcome<Value> {
    let counts = || -> Outcome<[f64; 2]> {
        let [leader, standby] = [leader.requests()?, standby.requests()?];
        Ok([leader[0] + standby[0], leader[1] + standby[1]])
    };
    let (before, began) = (counts()?, Instant::now());
    // The duration that is measured.
    thread::sleep(hold);
    let (after, hours) = (counts()?, began.elapsed().as_secs_f64() / 3600.0);
    Ok(json!({
        "writes_an_hour": (after[0] - before[0]) / hours,
        "other_requests_an_hour": (after[1] - before[1]) / hours,
        "memory_mb": leader.memory_mb()? + standby.memory_mb()?,
        "processes": 2,
        "renewals_an_hour": 3600.0 / RENEW_INTERVAL.as_secs_f64(),
    }))
}

/// The operator, whose candidates are pods. A holder that ends is proven to have ended by its pod.
fn redislease(installation: &Installation, amount: Amount) -> Outcome<Value> {
    let control_plane = installation.control_plane();
    let operator = installation.start_operator("operator-0", &[])?;
    installation.deployment("comparison", "billing", 3)?;
    let lease = installation.lease("comparison", "billing", &json!({"leaseDuration": "15s", "renewInterval": "2s"}))?;
    let mut held = lease.wait("held", PATIENCE, LeaseState::is_active)?;
    lease.wait_for_roles(&held, 3, PATIENCE)?;

    let sum = |metric: &str, labels: &[(&str, &str)]| -> Outcome<f64> {
        Ok(operator.metrics()?.value(metric, labels).ok_or_else(|| format!("the operator has no metric {metric}"))?)
    };
    let writes = || sum("redislease_api_writes_total", &[]);
    let renewals = || sum("redislease_renewals_total", &[("result", "success")]);
    // The writes of the start are complete when no more arrive for a while.
    poll(PATIENCE, || {
        let count = || writes().map_err(|error| error.to_string());
        let before = count()?;
        thread::sleep(SILENCE);
        let written = count()? - before;
        if written > 0.0 { Err(format!("the operator still writes: {written}")) } else { Ok(()) }
    })?;
    let (before, renewed, began) = (writes()?, renewals()?, Instant::now());
    // The duration that is measured.
    thread::sleep(amount.hold);
    let hours = began.elapsed().as_secs_f64() / 3600.0;
    let cost = json!({
        "writes_an_hour": (writes()? - before) / hours,
        "renewals_an_hour": (renewals()? - renewed) / hours,
        "memory_mb": resident_mb(operator.pid().ok_or("the operator has ended")?)?,
        "processes": 1,
    });

    let mut pods = control_plane.watch("pods", "comparison")?;
    let mut leases = control_plane.watch("redisleases", "comparison")?;
    let (mut released, mut crashed) = (Vec::new(), Vec::new());
    let mut random = Numbers(SEED);
    for number in 1..=amount.own_releases + amount.crashes {
        wait(&mut random);
        let pod = held.holder().unwrap_or_default().to_owned();
        if number <= amount.own_releases {
            control_plane.kubectl(&["delete", "pod", "-n", "comparison", &pod])?;
        } else {
            report_killed(control_plane, &pod)?;
        }
        let proven = pods.wait("the holder has ended", PATIENCE, |WatchEvent { kind, object, .. }| {
            let phase = object["status"]["phase"].as_str().unwrap_or_default();
            object["metadata"]["name"] == pod.as_str()
                && (kind == "DELETED" || phase == "Failed" || phase == "Succeeded")
        })?;
        let token = held.token();
        held = lease.wait("another holder", PATIENCE, |now| now.is_active() && now.token() > token)?;
        let named = leases.wait("the next holder is named", PATIENCE, |event| {
            event.object["status"]["fencingToken"].as_u64() >= held.token()
        })?;
        let took = named.at.saturating_duration_since(proven.at);
        if number <= amount.own_releases { &mut released } else { &mut crashed }.push(took);
        control_plane.kubectl(&["rollout", "status", "deployment/billing", "-n", "comparison"])?;
    }
    report("RedisLease", released, crashed, &cost)
}

/// Writes the status that a kubelet would write: all processes of the pod were killed and are not started again.
fn report_killed(control_plane: &ControlPlane, pod: &str) -> Outcome {
    let pods = ["-n", "comparison", pod];
    let read = control_plane.kubectl(&[&["get", "pod", "--output=json"][..], &pods].concat())?;
    let mut status = serde_json::from_str::<Value>(&read)?["status"].take();
    status["phase"] = json!("Failed");
    for container in status["containerStatuses"].as_array_mut().ok_or("the pod has no containers")? {
        container["ready"] = json!(false);
        container["state"] = json!({"terminated": {"exitCode": 137, "reason": "Error"}});
    }
    let patch = json!({"status": status}).to_string();
    let patched = ["patch", "pod", "--subresource=status", "--type=merge", "--patch", &patch];
    control_plane.kubectl(&[&patched[..], &pods].concat()).map(drop)?;
    Ok(())
}

fn report(system: &str, released: Vec<Duration>, crashed: Vec<Duration>, held: &Value) -> Outcome<Value> {
    let mut row = json!({"system": system, "held": held});
    for (what, took) in [("released", released), ("crashed", crashed)] {
        let seconds: Vec<f64> = took.iter().map(Duration::as_secs_f64).collect();
        let percentiles = Percentiles::of(took).ok_or("nothing was measured")?;
        println!("{system}, the leader {what}: {percentiles}");
        row[what] = json!(seconds);
    }
    println!("{system}, held: {}", row["held"]);
    Ok(row)
}
