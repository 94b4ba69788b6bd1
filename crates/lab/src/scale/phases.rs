//! The phases of a run, one after another.

use std::{
    collections::BTreeMap,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use serde_json::json;
use tokio::runtime::Runtime;

use super::{
    Goal, Options, Phase, Report, Row, bare,
    board::{Board, Following, follow},
    client::failed,
    keys,
    objects::{self, FAILOVER, Planned},
    report::megabytes,
    writes::Writes,
};
use crate::usage::{Usage, reset_peak};
use crate::{Error, Installation, InstallationOptions, Operator, Percentiles, Result, pause, poll, resume, unix_time};

/// The timeout of a step that is not measured, which ends the run.
const PATIENCE: Duration = Duration::from_mins(2);
/// The minimum number of objects that a slow machine handles in a second.
const OBJECTS_A_SECOND: usize = 50;
/// When no write arrives for this time, all writes are complete.
const SILENCE: Duration = Duration::from_secs(3);
/// The timeout of labels and events after a phase.
const SETTLE_WITHIN: Duration = Duration::from_mins(5);

/// A run with its servers and clients.
pub(super) struct Run<'a> {
    options: &'a Options,
    // The drop order: the watch before the runtime, and the operator before its servers.
    _following: Following,
    board: Board,
    client: Client,
    runtime: Runtime,
    planned: Vec<Planned>,
    operator: Option<Operator>,
    installation: Installation,
    report: Report,
    /// The peak memory over all phases.
    peak: u64,
    /// The writes that the API server received from the end of the outage until all leases were active, and the duration.
    recovery: Option<(Writes, Duration)>,
}

/// The counters at one time.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at: Instant,
    usage: Usage,
    by_operator: Writes,
    by_api_server: Writes,
}

impl<'a> Run<'a> {
    /// Starts all servers and creates all objects. The operator is not started yet.
    pub(super) fn prepare(options: &'a Options) -> Result<Self> {
        let longest = format!("{}ms", options.lease_duration.as_millis());
        let parts = InstallationOptions {
            nodes: options.nodes,
            quorum: json!({"maxLeaseDuration": longest}),
            ..InstallationOptions::new(&options.binary)
        };
        eprintln!("start the control plane and three Redis servers ...");
        let installation = Installation::start(&parts)?;
        let runtime = Runtime::new().map_err(Error::io("start a runtime"))?;
        let client = runtime.block_on(installation.control_plane().client())?;
        let planned = objects::plan(options);
        eprintln!("create {} leases and their pods ...", planned.len());
        runtime.block_on(objects::create(&client, options, &planned))?;
        let count = planned.len() + options.failovers;
        let within = PATIENCE + Duration::from_secs((count / OBJECTS_A_SECOND) as u64);
        let all_run = || match runtime.block_on(objects::running(&client))? {
            running if running == count => Ok(()),
            running => Err(format!("{running} of {count} run")),
        };
        poll(within, all_run).map_err(|last| Error::not_in_time("all pods run", within, last))?;
        let (board, following) = Board::watch(&runtime, &client);
        let seen = || if board.len() == planned.len() { Ok(()) } else { Err(format!("{} are seen", board.len())) };
        poll(PATIENCE, seen).map_err(|last| Error::not_in_time("a watcher sees all leases", PATIENCE, last))?;
        let report = Report { leases: options.leases, ..Report::default() };
        Ok(Self {
            options,
            _following: following,
            board,
            client,
            runtime,
            planned,
            operator: None,
            installation,
            report,
            peak: 0,
            recovery: None,
        })
    }

    pub(super) fn all(&mut self) -> Report {
        for phase in Phase::ALL {
            if phase != Phase::Start && !self.options.phases.contains(&phase) {
                continue;
            }
            eprintln!("phase {} ...", phase.name());
            let outcome = match phase {
                Phase::Start => self.start(),
                Phase::Hold => self.hold(),
                Phase::Restart => self.restart(),
                Phase::Failover => self.failover(),
                Phase::Outage => self.outage(),
                Phase::Bare => self.bare(),
            };
            if let Err(error) = outcome {
                // If a phase cannot be measured, the others are still run.
                eprintln!("  not measured: {error}");
                self.report.failed.push(format!("{}: {error}", phase.name()));
            } else if let Some(row) = self.report.row(&phase.name()) {
                eprintln!("  {}", row.result);
            }
        }
        let limit = if self.options.leases <= 1000 { 60 } else { 200 };
        let peak = megabytes(self.peak);
        self.goal("memory, the peak of all phases", peak, f64::from(limit), "MB", 1);
        std::mem::take(&mut self.report)
    }

    /// The time from the operator's start to the end of the first wait, and until all leases are active.
    fn start(&mut self) -> Result<()> {
        let began = Instant::now();
        let before = self.count_at_api_server()?;
        self.operator = Some(self.installation.start_operator("operator-0", &[])?);
        keys::wait_for_votes(&self.installation, self.options.lease_duration + PATIENCE)?;
        let votes = Instant::now();
        let active = self.board.all_active(self.planned.len(), &BTreeMap::new(), self.options.patience);
        let mark = self.mark()?;
        let wait = (votes - began).as_secs_f64();
        let result = match active {
            Ok(at) => {
                let took = at.saturating_duration_since(votes).as_secs_f64();
                if self.options.leases <= 1000 {
                    self.goal("start: all active after the first wait", took, 5.0, "s", 1);
                }
                format!("all active {took:.1} s after the first wait of {wait:.1} s")
            }
            Err(left) => {
                self.count_goal("start: leases left behind", left);
                format!("{left} not active {:.0} s after the first wait", self.options.patience.as_secs_f64())
            }
        };
        self.add(Row {
            phase: Phase::Start.name(),
            result,
            usage: mark.usage,
            took: began.elapsed(),
            cpu: mark.usage.cpu,
            by_operator: mark.by_operator,
            by_api_server: mark.by_api_server - before,
        });
        self.settle()
    }

    fn hold(&mut self) -> Result<()> {
        let before = self.begin()?;
        // The duration that is measured.
        thread::sleep(self.options.hold);
        let after = self.mark()?;
        let row = row(Phase::Hold, String::new(), &before, &after);
        let (cores, seconds) = (row.cpu.as_secs_f64() / row.took.as_secs_f64(), row.took.as_secs_f64());
        let (ours, theirs) = (row.by_operator.all(), row.by_api_server.all());
        self.goal("hold: CPU", cores, 0.1, "cores", 3);
        self.goal("hold: writes to the API server", ours.max(theirs), 0.0, "", 0);
        let moved = self.board.moved_since(before.at);
        self.count_goal("hold: leases that moved", moved);
        self.add(Row { result: format!("held for {seconds:.0} s, {moved} moved"), ..row });
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        let before = self.begin()?;
        let operator = self.operator()?;
        operator.stop()?;
        let (since, started) = (unix_time(), Instant::now());
        operator.start_again()?;
        let extended =
            keys::wait_for_extensions(&self.installation, self.options, &self.planned, since, self.options.patience)?;
        let after = self.mark()?;
        // A lease that the new process did not adopt has ended by then.
        let judged = before.at + self.options.lease_duration + self.options.renew_interval;
        if extended.leases < self.planned.len() {
            thread::sleep(judged.saturating_duration_since(Instant::now()));
        }
        let (lost, left) = (self.board.moved_since(before.at), self.planned.len() - extended.leases);
        let took = extended.last.as_secs_f64();
        self.goal("restart: all leases adopted", if left == 0 { took } else { f64::INFINITY }, 3.0, "s", 2);
        self.count_goal("restart: leases lost", lost);
        self.add(Row {
            phase: Phase::Restart.name(),
            result: format!("{} adopted in {took:.2} s, {lost} lost", extended.leases),
            usage: after.usage,
            took: started.elapsed(),
            cpu: after.usage.cpu,
            by_operator: after.by_operator,
            by_api_server: after.by_api_server - before.by_api_server,
        });
        self.settle()
    }

    /// The time from the event that proves that the holder stopped to the event with the next holder, as one watcher
    /// receives them.
    fn failover(&mut self) -> Result<()> {
        let (stopped, proofs) = mpsc::channel();
        let pods: Api<Pod> = Api::all(self.client.clone());
        let _following = follow(&self.runtime, pods, Some(FAILOVER), move |pod: &Pod, exists| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
            if !exists || ["Succeeded", "Failed"].contains(&phase) {
                // The receiver is dropped at the end of the phase.
                let _ = stopped.send((pod.name_any(), Instant::now()));
            }
        });
        let before = self.begin()?;
        let mut took = Vec::new();
        for lease in self.planned.iter().filter(|lease| lease.fails_over) {
            let old = self.board.row(&lease.key());
            let Some(holder) = old.holder.filter(|_| old.active) else { continue };
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &lease.namespace);
            let deleted = self.runtime.block_on(pods.delete(&holder, &DeleteParams::default()));
            deleted.map_err(|error| failed(&format!("delete pod {holder}"), error))?;
            let what = format!("a watcher sees that pod {holder} has stopped");
            let deadline = Instant::now() + PATIENCE;
            let proven = loop {
                let left = deadline.saturating_duration_since(Instant::now());
                let (pod, at) =
                    proofs.recv_timeout(left).map_err(|_| Error::not_in_time(&what, PATIENCE, "it runs"))?;
                if pod == holder {
                    break at;
                }
            };
            let next = self.board.wait(&lease.key(), PATIENCE, |row| row.active && row.token > old.token);
            let named = next.and_then(|row| row.active_at);
            let named = named.ok_or_else(|| {
                Error::not_in_time(format!("{} has another holder", lease.key()), PATIENCE, "it has none")
            })?;
            took.push(named.saturating_duration_since(proven));
        }
        let after = self.mark()?;
        let deleted = took.len();
        let result = match Percentiles::of(took) {
            None => "no lease had a holder to delete".to_owned(),
            Some(percentiles) => {
                let p99 = percentiles.percentile(99).as_secs_f64() * 1e3;
                self.goal("failover: proof to next holder, p99", p99, 250.0, "ms", 0);
                format!("{deleted} holders deleted, proof to next holder {percentiles}")
            }
        };
        self.add(row(Phase::Failover, result, &before, &after));
        self.settle()
    }

    fn outage(&mut self) -> Result<()> {
        let tokens = self.board.tokens();
        let stopped = self.installation.redis()[1..].to_vec();
        let before = self.begin()?;
        pause(&stopped)?;
        // The duration of the fault.
        thread::sleep(self.options.outage);
        let (lost, at_the_end) = (self.board.moved_since(before.at), self.count_at_api_server()?);
        resume(&stopped)?;
        let resumed = Instant::now();
        let active = self.board.all_active(self.planned.len(), &tokens, self.options.patience);
        let recovered = self.count_at_api_server()? - at_the_end;
        let result = match active {
            Ok(at) => {
                let took = at.saturating_duration_since(resumed);
                self.recovery = Some((recovered, took));
                if self.options.leases <= 1000 {
                    self.goal("outage: all active after it", took.as_secs_f64(), 10.0, "s", 1);
                }
                format!("{lost} lost; all active {:.1} s after it", took.as_secs_f64())
            }
            Err(left) => {
                let patience = self.options.patience.as_secs_f64();
                format!("{lost} lost; {left} not active {patience:.0} s after it")
            }
        };
        self.count_goal("outage: leases left behind", active.err().unwrap_or_default());
        let deadline = Instant::now() + SETTLE_WITHIN;
        self.settle()?;
        let mut wrong = self.runtime.block_on(self.wrong_roles())?;
        // A silence may also be that of a server that is too busy to count.
        while wrong > 0 && Instant::now() < deadline {
            eprintln!("  {wrong} leases are labelled wrongly after {:.1} s", resumed.elapsed().as_secs_f64());
            self.settle()?;
            wrong = self.runtime.block_on(self.wrong_roles())?;
        }
        self.count_goal("outage: leases whose pods are labelled wrongly at the end", wrong);
        let row = row(Phase::Outage, String::new(), &before, &self.mark()?);
        let per_lease = |writes: f64| writes / f64::from(u32::try_from(self.planned.len()).unwrap_or(u32::MAX));
        let status = per_lease(row.by_api_server.status.max(row.by_operator.status));
        let all = per_lease(row.by_api_server.all().max(row.by_operator.all()));
        if self.options.leases <= 1000 {
            self.goal("outage: status writes for each lease", status, 4.0, "", 2);
            self.goal("outage: API writes for each lease", all, 8.0, "", 2);
        }
        let writes = format!("for each lease {status:.1} status writes and {all:.1} API writes");
        let result = format!("{result}; {writes}; {wrong} labelled wrongly");
        self.add(Row { result, ..row });
        Ok(())
    }

    /// The number of leases for which other pods are labelled `active` than the one in status.
    async fn wrong_roles(&self) -> Result<usize> {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let listed = pods.list_metadata(&ListParams::default().labels("lease").match_any()).await;
        let mut active: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pod in listed.map_err(|error| failed("list the pods", error))? {
            let Some(lease) = pod.labels().get("lease") else { continue };
            let key = format!("{}/{lease}", pod.namespace().unwrap_or_default());
            if pod.labels().get(&format!("lease.redislease.io/{lease}")).is_some_and(|role| role == "active") {
                active.entry(key).or_default().push(pod.name_any());
            }
        }
        let is_wrong = |lease: &&Planned| {
            let row = self.board.row(&lease.key());
            let holder: Vec<String> = row.holder.filter(|_| row.active).into_iter().collect();
            active.get(&lease.key()).cloned().unwrap_or_default() != holder
        };
        Ok(self.planned.iter().filter(is_wrong).count())
    }

    /// The operator stops first, because it would react to the writes of the bare client.
    fn bare(&mut self) -> Result<()> {
        let leases = f64::from(u32::try_from(self.planned.len()).unwrap_or(u32::MAX));
        let default = Writes { status: 2.0 * leases, roles: leases, ..Writes::default() };
        let (writes, recovery) = self.recovery.map_or((default, None), |(writes, took)| (writes, Some(took)));
        let last = self.mark()?;
        self.operator()?.stop()?;
        let before = self.count_at_api_server()?;
        let took = self.runtime.block_on(bare::write(&self.client, writes, self.options.writers))?;
        let by_api_server = self.count_at_api_server()? - before;
        let rate = writes.all() / took.as_secs_f64();
        let mut result = format!("{:.0} writes in {:.1} s, {rate:.0} a second", writes.all(), took.as_secs_f64());
        if let Some(recovery) = recovery {
            let ratio = recovery.as_secs_f64() / took.as_secs_f64();
            result = format!("{result}; the operator took {ratio:.2} times as long after the outage");
            if self.options.leases > 1000 {
                self.goal("outage: recovery against a bare client with as many writes", ratio, 1.3, "times", 2);
            }
        }
        self.add(Row { phase: Phase::Bare.name(), result, usage: last.usage, took, by_api_server, ..Row::default() });
        Ok(())
    }

    fn operator(&self) -> Result<&Operator> {
        self.operator.as_ref().ok_or_else(|| Error::NotRunning { process: "operator".to_owned() })
    }

    fn pid(&self) -> Result<u32> {
        let pid = self.operator()?.pid();
        pid.ok_or_else(|| Error::NotRunning { process: "operator".to_owned() })
    }

    fn count_at_api_server(&self) -> Result<Writes> {
        Ok(Writes::by_api_server(&self.installation.control_plane().metrics()?))
    }

    /// The counters at the beginning of a phase. The cost of the operator's metrics page falls before it.
    fn begin(&self) -> Result<Mark> {
        let by_operator = Writes::by_operator(&self.operator()?.metrics()?);
        let by_api_server = self.count_at_api_server()?;
        let pid = self.pid()?;
        reset_peak(pid)?;
        Ok(Mark { at: Instant::now(), usage: Usage::of(pid)?, by_operator, by_api_server })
    }

    /// The counters now. The cost of the operator's metrics page falls after it.
    fn mark(&self) -> Result<Mark> {
        let (at, usage) = (Instant::now(), Usage::of(self.pid()?)?);
        let by_operator = Writes::by_operator(&self.operator()?.metrics()?);
        Ok(Mark { at, usage, by_operator, by_api_server: self.count_at_api_server()? })
    }

    /// Waits until the API server has received no write for a while.
    fn settle(&self) -> Result<()> {
        let deadline = Instant::now() + SETTLE_WITHIN;
        let (mut last, mut since) = (self.count_at_api_server()?, Instant::now());
        while since.elapsed() < SILENCE && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(500));
            let now = self.count_at_api_server()?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    fn add(&mut self, row: Row) {
        self.peak = self.peak.max(row.usage.peak);
        self.report.rows.push(row);
    }

    fn goal(&mut self, name: &str, measured: f64, limit: f64, unit: &str, digits: usize) {
        let show = |figure: f64| format!("{figure:.digits$} {unit}").trim_end().to_owned();
        let (measured, limit, met) =
            (show(measured), format!("{limit} {unit}").trim_end().to_owned(), measured <= limit);
        self.report.goals.push(Goal { name: name.to_owned(), limit, measured, met });
    }

    /// A goal of zero.
    fn count_goal(&mut self, name: &str, count: usize) {
        let (measured, limit) = (count.to_string(), "0".to_owned());
        self.report.goals.push(Goal { name: name.to_owned(), limit, measured, met: count == 0 });
    }
}

fn row(phase: Phase, result: String, before: &Mark, after: &Mark) -> Row {
    Row {
        phase: phase.name(),
        result,
        usage: after.usage,
        took: after.at - before.at,
        cpu: after.usage.cpu.saturating_sub(before.usage.cpu),
        by_operator: after.by_operator - before.by_operator,
        by_api_server: after.by_api_server - before.by_api_server,
    }
}
