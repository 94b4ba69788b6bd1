//! The events of the run while Prometheus scrapes: every panel must get data.

use std::{
    error::Error,
    time::{Duration, Instant},
};

use redislease_lab::{Installation, Lease, LeaseState, Operator, Prometheus, refuse};
use serde_json::json;

pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The value of the label `cluster`.
pub const CLUSTER: &str = "lab";

/// The timeout of a step; a busy machine is not a failure.
const SOON: Duration = Duration::from_mins(1);

/// In how many scrapes each state must be seen. Prometheus scrapes once a second.
const SCRAPES: u32 = 6;

/// The expectation for the expression of each alert, without its `for` duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The run has the fault, so the expression must hold at some time.
    Holds,
    /// The run must not have the fault.
    Never,
    /// It depends on timing.
    Either,
}

pub const ALERTS: [(&str, Expected); 15] = [
    ("RedisLeaseUnheld", Expected::Either),
    ("RedisLeaseFencingTokenRegressed", Expected::Never),
    ("RedisLeaseFlapping", Expected::Either),
    ("RedisLeaseNoStandby", Expected::Holds),
    ("RedisLeaseNotReady", Expected::Either),
    ("RedisLeaseRenewFailing", Expected::Holds),
    ("RedisLeaseRenewMarginLow", Expected::Either),
    ("RedisLeaseQuorumLost", Expected::Holds),
    ("RedisLeaseQuorumAtRisk", Expected::Holds),
    // With three nodes, one failed node leaves exactly a majority.
    ("RedisLeaseQuorumDegraded", Expected::Either),
    ("RedisLeaseQuorumConfigMismatch", Expected::Never),
    ("RedisLeaseClockOffset", Expected::Never),
    ("RedisLeaseOperatorDown", Expected::Either),
    ("RedisLeasePanic", Expected::Never),
    ("RedisLeaseSplitBrain", Expected::Never),
];

pub struct Story<'a> {
    installation: &'a Installation,
    prometheus: &'a Prometheus,
    operators: Vec<Operator>,
    billing: Lease<'a>,
    others: Vec<Lease<'a>>,
    started: Instant,
}

const NAMES: [&str; 2] = ["operator-0", "operator-1"];

impl<'a> Story<'a> {
    /// Starts two replicas, and returns when Prometheus scrapes both, before any counter has increased.
    pub fn start(installation: &'a Installation, prometheus: &'a Prometheus) -> Outcome<Self> {
        let operators = installation.start_replicas(NAMES.len())?;
        let story = Self {
            installation,
            prometheus,
            operators,
            billing: installation.find_lease("shop", "billing"),
            others: Vec::new(),
            started: Instant::now(),
        };
        story.scrape()?;
        Ok(story)
    }

    pub fn run(&mut self) -> Outcome {
        self.first_holders()?;
        self.holders_are_deleted()?;
        self.holder_vanishes()?;
        self.writes_are_refused_and_undone()?;
        self.one_redis_is_down()?;
        self.quorum_is_lost()?;
        self.operator_is_replaced()?;
        self.say("everything is healthy again");
        self.seen()?;
        Ok(())
    }

    fn first_holders(&mut self) -> Outcome {
        self.say("three leases are created on a new quorum");
        for (namespace, name, pods) in [("shop", "billing", 3), ("shop", "reports", 2), ("jobs", "invoice", 1)] {
            self.installation.deployment(namespace, name, pods)?;
            let lease = self.installation.lease(namespace, name, &json!({}))?;
            if name != "billing" {
                self.others.push(lease);
            }
        }
        self.all_held()?;
        self.say("all of them are held");
        self.seen()?;
        Ok(())
    }

    fn holders_are_deleted(&self) -> Outcome {
        for _ in 0..3 {
            self.say("the holder of shop/billing is deleted and stops");
            self.next_holder(&[])?;
            self.seen()?;
        }
        Ok(())
    }

    fn holder_vanishes(&self) -> Outcome {
        self.say("the holder of shop/billing is deleted by force: its keys must expire");
        self.next_holder(&["--grace-period=0", "--force"])?;
        self.seen()?;
        Ok(())
    }

    fn writes_are_refused_and_undone(&self) -> Outcome {
        const LABEL: &str = "lease.redislease.io/billing";
        self.say("a policy refuses the label of shop/billing, and somebody removes it");
        let held = self.billing.state()?;
        let pod = held.holder().ok_or("no pod holds shop/billing")?;
        let label = format!("{LABEL}=active");
        let write = vec!["label", "pod", pod, "-n", "shop", "--overwrite", &label, "note=1"];
        let without = format!("!has(object.metadata.labels) || !('{LABEL}' in object.metadata.labels)");
        let refusal = refuse(self.installation, "shop", ["", "pods"], &without, write)?;
        let remove =
            || self.installation.control_plane().kubectl(&["label", "pod", pod, "-n", "shop", &format!("{LABEL}-")]);
        remove()?;
        self.counted("redislease_writes_refused_total")?;
        refusal.end()?;
        self.billing.wait_for_roles(&held, 3, SOON)?;
        self.say("it is allowed again, and somebody removes the label once more");
        remove()?;
        self.billing.wait_for_roles(&held, 3, SOON)?;
        self.counted("redislease_corrections_total")?;
        self.seen()
    }

    /// Waits until one of the operators has counted something in this metric.
    fn counted(&self, metric: &str) -> Outcome {
        self.installation.wait_for(metric, SOON, || {
            let mut total = 0.0;
            for operator in &self.operators {
                total += operator.metrics().map_err(|error| error.to_string())?.value(metric, &[]).unwrap_or_default();
            }
            if total > 0.0 { Ok(()) } else { Err("it is 0".into()) }
        })?;
        Ok(())
    }

    fn one_redis_is_down(&self) -> Outcome {
        self.say("one of three Redis servers is killed");
        let redis = &self.installation.redis()[0];
        redis.process().kill()?;
        self.installation.wait_for_quorum("redis-0 is down", SOON, |quorum| quorum.node(0).0 == "Down")?;
        self.seen()?;
        redis.restart_empty()?;
        self.say("it is back without its data, in quarantine");
        self.installation.wait_for_quorum("three nodes vote", SOON, |quorum| quorum.count("Up") == 3)?;
        Ok(())
    }

    fn quorum_is_lost(&self) -> Outcome {
        self.say("two of three Redis servers are killed");
        let lost = &self.installation.redis()[1..];
        for redis in lost {
            redis.process().kill()?;
        }
        for lease in self.leases() {
            lease.wait("lost", SOON, |lease| !lease.is_active())?;
        }
        self.say("all leases are lost");
        self.seen()?;
        for redis in lost {
            redis.restart_empty()?;
        }
        self.all_held()?;
        self.say("the servers are back, and all leases are held");
        self.seen()?;
        Ok(())
    }

    fn operator_is_replaced(&self) -> Outcome {
        self.say("one replica of the operator is killed and started again");
        self.operators[0].kill()?;
        self.seen()?;
        self.operators[0].start_again()?;
        self.scrape()?;
        self.operators[0].wait_ready()?;
        self.say("and the other one stops, and is started again");
        self.operators[1].stop()?;
        self.seen()?;
        self.operators[1].start_again()?;
        self.scrape()?;
        self.operators[1].wait_ready()?;
        self.all_held()?;
        self.say("a holder is deleted once more");
        self.next_holder(&[])
    }

    /// A restarted operator listens on another port.
    fn scrape(&self) -> Outcome {
        let operators: Vec<_> = NAMES.into_iter().zip(&self.operators).collect();
        self.prometheus.scrape(CLUSTER, &operators)?;
        self.prometheus.wait_scraped(&NAMES, SOON)?;
        Ok(())
    }

    /// Waits until the present state was scraped several times.
    fn seen(&self) -> Outcome {
        Ok(self.prometheus.wait_scrapes(SCRAPES, SOON)?)
    }

    fn leases(&self) -> impl Iterator<Item = &Lease<'a>> {
        self.others.iter().chain([&self.billing])
    }

    fn all_held(&self) -> Outcome {
        for lease in self.leases() {
            lease.wait("held", SOON, LeaseState::is_active)?;
        }
        Ok(())
    }

    fn next_holder(&self, how: &[&str]) -> Outcome {
        let before = self.billing.state()?;
        let pod = before.holder().ok_or("no pod holds shop/billing")?;
        let delete = ["delete", "pod", pod, "--namespace", "shop", "--wait=false"];
        self.installation.control_plane().kubectl(&[&delete, how].concat())?;
        self.billing.wait("another holder", SOON, |lease| lease.is_active() && lease.token() > before.token())?;
        Ok(())
    }

    fn say(&self, text: &str) {
        println!("{:6.1} s  {text}", self.started.elapsed().as_secs_f32());
    }
}
