//! The lock is lost in every way that can be caused here. A second program takes it over, and nothing of the first one runs then.
//!
//! `REDISLEASE_TEST_LOSSES` is the number of losses in each case, and `REDISLEASE_TEST_CASE` a part of the names of those that run.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cases::{CASES, Case, Fault, Place};
use crate::container;
use crate::lane::{Lane, Loss};
use crate::process_log::overlaps;
use crate::support::{PATIENCE, Servers, eventually};
use redislease_lab::{RedisServer, SuspendLibrary, pause, poll, resume};

/// How many losses each case has, if nothing else is asked for.
const FEW: usize = 20;
/// The most losses of one case at a time.
const LANES: usize = 20;
/// At most this time passes between two renewals, in milliseconds.
const RENEWAL: f64 = 1000.0;

/// How many cases run at a time: they wait most of the time.
const AT_ONCE: usize = 3;

#[test]
fn nothing_of_the_first_command_runs_when_the_second_one_does() {
    let count = std::env::var("REDISLEASE_TEST_LOSSES").ok().and_then(|count| count.parse().ok()).unwrap_or(FEW);
    let folder = tempfile::Builder::new().prefix("redislease-losses-").tempdir().unwrap();
    // Also for the case without privileges.
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    let only = std::env::var("REDISLEASE_TEST_CASE").unwrap_or_default();
    let cases = Mutex::new(CASES.iter().enumerate().filter(|(_, case)| case.name.contains(&only)));
    let next = || cases.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((index, case)) = next() {
                    if !is_root && matches!(case.place, Place::Pid1 | Place::User) {
                        redislease_lab::skipped(&format!("losses of {}: only root can start it", case.name));
                        continue;
                    }
                    if let Some(missing) = container::missing().filter(|_| case.place == Place::Container) {
                        redislease_lab::skipped(&format!("losses of {}: {missing}", case.name));
                        continue;
                    }
                    lose(*case, index, count, folder.path());
                }
            });
        }
    });
}

/// Loses `count` locks in the same way.
fn lose(case: Case, index: usize, count: usize, folder: &Path) {
    let is_cut = matches!(case.fault, Fault::CutNetwork | Fault::ResetNetwork);
    let servers = if is_cut { Servers::behind_proxies() } else { Servers::short() };
    let store = Arc::new(RedisServer::start().unwrap());
    let library = (case.fault == Fault::Suspend).then(|| {
        let folder = folder.join(format!("case{index}"));
        std::fs::create_dir(&folder).unwrap();
        SuspendLibrary::compile(&folder).unwrap()
    });
    let mut losses = Vec::new();
    while losses.len() < count {
        let (begin, lanes) = (losses.len(), LANES.min(count - losses.len()));
        let names = (begin..begin + lanes).map(|lane| format!("case{index}-{lane}"));
        let start = |name: &str| Lane::start(case, (&servers, &store), folder, library.as_ref(), name);
        losses.extend(round(case, &servers, start, &names.collect::<Vec<_>>()));
    }
    check(case, &losses);
}

/// Loses the lock of each name once, at about the same time.
fn round(case: Case, servers: &Servers, start: impl Fn(&str) -> Lane, names: &[String]) -> Vec<Loss> {
    let mut lanes: Vec<Lane> = names.iter().map(|name| start(name)).collect();
    let count = lanes.len();
    for (lane, name) in lanes.iter_mut().zip(names) {
        let mut again = 0;
        while !lane.wait_for_work() {
            again += 1;
            assert!(again < 5, "{case:?}: the lock is lost again and again before the fault");
            *lane = start(&format!("{name}-{again}"));
        }
    }
    for (index, lane) in lanes.iter_mut().enumerate() {
        // At different times after a renewal.
        std::thread::sleep(Duration::from_millis(17 * (index as u64 % 4)));
        lane.fault(servers);
    }
    if case.fault == Fault::StopServers {
        pause(&servers.redis).unwrap();
        eventually("the commands to end", || {
            lanes.iter_mut().map(Lane::has_ended).filter(|ended| *ended).count() == count
        });
        resume(&servers.redis).unwrap();
    }
    let mut waiting = String::new();
    let taken_over = poll(PATIENCE, || {
        let is_over = |lane: &mut Lane| lane.is_awake() & lane.is_taken_over();
        waiting = lanes.iter_mut().filter_map(|lane| (!is_over(lane)).then(|| lane.told())).collect();
        if waiting.is_empty() { Ok(()) } else { Err(String::new()) }
    });
    assert!(taken_over.is_ok(), "{case:?}: these locks are not taken over after {PATIENCE:?}:\n{waiting}");
    lanes.into_iter().map(Lane::finish).collect()
}

fn check(case: Case, losses: &[Loss]) {
    let mut after: Vec<f64> = losses.iter().map(|loss| loss.after_deadline_ms).collect();
    after.sort_by(f64::total_cmp);
    let at = |percent: usize| after[(after.len() * percent).div_ceil(100).clamp(1, after.len()) - 1];
    let overlapping = losses.iter().filter(|loss| !overlaps(&loss.processes).is_empty()).count();
    let rejected: usize = losses.iter().map(|loss| loss.rejected).sum();
    // See `Loss::after_deadline_ms`.
    let is_suspended = case.fault == Fault::Suspend;
    let what = if is_suspended { "end of the suspended command" } else { "last instruction" };
    println!(
        "{:<30} {} losses, {what} after the deadline p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms; overlaps \
         {overlapping}, writes rejected by the store {rejected}",
        case.name,
        losses.len(),
        at(50),
        at(99),
        at(100),
    );
    for loss in losses {
        let is_known = loss.code.is_some() || case.place != Place::Terminal;
        assert!(!is_known || loss.code == Some(76), "{case:?}: {:?}: {}", loss.code, loss.output);
        // What a `run` that was suspended notices first depends on when it is scheduled.
        let said = ["the kernel has killed the command", "the lock expired", "the lock was not renewed in time"];
        let is_said = said.iter().any(|text| loss.output.contains(text));
        assert!(!is_suspended || is_said, "{case:?}: {}", loss.output);
        let late = loss.after_deadline_ms;
        // The guard is told of a renewal first. On a machine whose disk is slow, `run` is stopped before the file says it too.
        let renewal = if matches!(case.fault, Fault::StopRun | Fault::StopBoth) { RENEWAL } else { 0.0 };
        let most = 1000.0 + renewal;
        assert!(case.can_overlap || late < most, "{case:?}: {late} ms after the deadline, when the lock has expired");
        assert!(case.can_overlap || loss.rejected == 0, "{case:?}: the store has rejected {} writes", loss.rejected);
        assert!(loss.processes.len() >= 2, "{case:?}");
        let overlap = overlaps(&loss.processes);
        assert!(case.can_overlap || overlap.is_empty(), "{case:?}: overlap of {overlap:?} ns: {:?}", loss.processes);
    }
}
