//! The chapters. Each waits, with a deadline, until the API server or /metrics confirms its claims.

use std::{
    error::Error,
    time::{Duration, Instant},
};

use redislease_lab::{Deadline, Installation, Lease, LeaseState, Operator, QuorumState, SYSTEM};
use serde_json::{Value, json};

use crate::narrator::{Narrator, holder, token};

pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

pub const NAMESPACE: &str = "shop";
pub const WORKLOAD: &str = "billing";
pub const REPLICAS: usize = 3;

const GRACE_PERIOD: Duration = Duration::from_secs(5);
/// From the loss of the lease to the time at which another pod may hold it: the grace period plus 1 s.
const STOP_BUDGET: Duration = Duration::from_secs(6);
/// Limit for steps that do not wait for a lease. It tolerates a busy machine.
const SOON: Duration = Duration::from_secs(20);
/// Limit for steps that wait for the longest lease of the quorum.
const AFTER_THE_LONGEST_LEASE: Duration = Duration::from_secs(35);

/// The shortest lease that survives the end of the leading replica.
pub fn lease_spec() -> Value {
    json!({"leaseDuration": "15s", "renewInterval": "2s", "gracePeriod": "5s"})
}

pub struct Story<'a> {
    installation: &'a Installation,
    replicas: &'a [Operator],
    lease: Lease<'a>,
    narrator: Narrator,
    /// The lease at the end of the last chapter.
    now: Option<LeaseState>,
}

impl<'a> Story<'a> {
    pub fn new(installation: &'a Installation, replicas: &'a [Operator], narrator: Narrator) -> Self {
        let lease = installation.find_lease(NAMESPACE, WORKLOAD);
        Self { installation, replicas, lease, narrator, now: None }
    }

    pub fn into_narrator(self) -> Narrator {
        self.narrator
    }

    /// Runs all chapters.
    pub fn tell(&mut self) -> Outcome {
        self.first_holder()?;
        self.holders_pod_is_deleted()?;
        self.one_redis_is_killed()?;
        self.leader_is_killed()?;
        self.two_redis_are_killed()?;
        self.they_come_back_empty()?;
        self.metrics_count_it()
    }

    fn first_holder(&mut self) -> Outcome {
        self.narrator.chapter("The first holder is elected");
        self.wait_for_quorum("nodes that wait", SOON, |quorum| quorum.count("Quarantined") == 3)?;
        self.narrator.say(
            "A new server has no vote until the longest lease has passed, 15 s: it could be a server that has\n\
             lost its data, and with them a lease that still runs.",
        );
        let first = self.wait("a first holder", AFTER_THE_LONGEST_LEASE, LeaseState::is_active)?;
        self.narrator.say(&format!("{} holds the lease, fencing token {}", holder(&first), token(&first)));
        self.see_roles(&first)?;
        self.show()?;
        self.now = Some(first);
        Ok(())
    }

    fn holders_pod_is_deleted(&mut self) -> Outcome {
        self.narrator.chapter("The holder's pod is deleted");
        let before = self.before()?;
        let deleted = Instant::now();
        let pod = holder(&before);
        self.kubectl(&["delete", "pod", &pod, "--namespace", NAMESPACE, "--wait=false"])?;
        self.narrator.say(&format!("{pod} is terminating. It keeps the lease until its containers have stopped."));
        let next = self.wait("another holder with a greater token", SOON, |lease| {
            lease.is_active() && lease.holder() != before.holder() && lease.token() > before.token()
        })?;
        self.narrator.say(&format!(
            "{} holds it, fencing token {} (greater), {:.2} s after the request to delete the pod",
            holder(&next),
            token(&next),
            deleted.elapsed().as_secs_f32(),
        ));
        self.see_roles(&next)?;
        self.now = Some(next);
        Ok(())
    }

    fn one_redis_is_killed(&mut self) -> Outcome {
        self.narrator.chapter("One Redis of three is killed");
        let before = self.before()?;
        let redis = &self.installation.redis()[0];
        redis.process().kill()?;
        let without_renewal = self.deadline()?;
        self.narrator.say("redis-0 is killed. Without another renewal the lease would end in less than 15 s.");
        self.wait_for_quorum("redis-0 is Down", SOON, |quorum| quorum.node(0).0 == "Down")?;
        let ended = |_: &LeaseState| without_renewal.left(Instant::now()) < 0.0;
        let later = self.wait("the lease outlives what it had left", SOON, ended)?;
        unchanged(&before, &later)?;
        self.narrator.say(&format!(
            "{} still holds it, same token {}: the other two nodes renew it",
            holder(&later),
            token(&later)
        ));
        redis.restart_empty()?;
        self.narrator.say("redis-0 is started again without its data. It has no vote for 15 s.");
        self.wait_for_quorum("redis-0 is Quarantined", SOON, |quorum| quorum.node(0).0 == "Quarantined")?;
        Ok(())
    }

    fn leader_is_killed(&mut self) -> Outcome {
        self.narrator.chapter("The leading replica of the operator is killed");
        let before = self.before()?;
        let leader = self.leader()?;
        let next = 1 - leader;
        self.replicas[leader].kill()?;
        let killed = Instant::now();
        self.narrator
            .say(&format!("operator-{leader} is killed. Its lock, which it renewed every second, ends after 5 s."));
        self.wait_for_quorum("the other replica leads", SOON, |quorum| {
            quorum.leader() == Some(&format!("operator-{next}"))
        })?;
        let took = killed.elapsed().as_secs_f32();
        let lease = self.lease.clone();
        let active = lease.labels();
        let success: Vec<_> = active.iter().copied().chain([("result", "success")]).collect();
        self.wait_until("the new leader renews", SOON, |story| {
            let metrics = story.replicas[next].metrics()?;
            let renewed = metrics.value("redislease_lease_renewals_total", &success).unwrap_or_default();
            let active = metrics.value("redislease_lease_active", &active).unwrap_or_default();
            if renewed >= 1.0 && active >= 1.0 { Ok(()) } else { Err(format!("{renewed} renewals, active {active}")) }
        })?;
        let later = self.lease.state()?;
        unchanged(&before, &later)?;
        self.narrator.say(&format!(
            "operator-{next} leads {took:.2} s after the kill and renews: {}, same token {}, same attempt",
            holder(&later),
            token(&later)
        ));
        self.replicas[leader].start_again()?;
        self.narrator.say(&format!("operator-{leader} is started again and follows."));
        self.wait_for_quorum("redis-0 votes again", AFTER_THE_LONGEST_LEASE, |quorum| quorum.count("Up") == 3)?;
        self.narrator.say("redis-0 votes again: 3 of 3 nodes are Up");
        let table = self.kubectl(&["get", "redisquorum", "--namespace", SYSTEM, "--output=wide"])?;
        self.narrator.quote(&format!("$ kubectl get redisquorum -n {SYSTEM}\n{table}"));
        Ok(())
    }

    fn two_redis_are_killed(&mut self) -> Outcome {
        self.narrator.chapter("Two Redis of three are killed");
        let before = self.before()?;
        unchanged(&before, &self.lease.state()?)?;
        let killed = Instant::now();
        for redis in &self.installation.redis()[1..] {
            redis.process().kill()?;
        }
        let deadline = self.deadline()?;
        self.narrator.say(&format!(
            "redis-1 and redis-2 are killed: no process can renew. Another pod may hold the lease in {:.1} s. The\n\
             holder must know its loss {} s and 1 s earlier: its grace period, and a reserve.",
            deadline.left(Instant::now()),
            GRACE_PERIOD.as_secs(),
        ));
        let lost = self.wait("the lease is declared lost", SOON, |lease| !lease.is_active())?;
        let (seen, took) = (Instant::now(), killed.elapsed().as_secs_f32());
        let reason = lost.reason("Active");
        if reason != "LeaseLost" {
            return Err(format!("Active is False with reason {reason} instead of LeaseLost: {lost}").into());
        }
        let left = deadline.left(seen);
        if left < GRACE_PERIOD.as_secs_f64() {
            return Err(
                format!("The lease was declared lost {left:.2} s before its end, too late to stop in: {lost}").into()
            );
        }
        self.narrator.say(&format!(
            "Active=False, {reason}: {took:.2} s after the kill, {} the deadline for it,\n\
             {left:.2} s before another pod may hold the lease",
            offset(deadline.late(seen)),
        ));
        self.wait_until("no pod is labelled active", SOON, |story| {
            let roles = story.lease.roles()?;
            let active = roles.values().any(|role| role.label.as_deref() == Some("active"));
            if active { Err(format!("{roles:?}")) } else { Ok(()) }
        })?;
        self.narrator.say("No pod is labelled active.");
        Ok(())
    }

    fn they_come_back_empty(&mut self) -> Outcome {
        self.narrator.chapter("They are started again without their data");
        let before = self.before()?;
        for redis in &self.installation.redis()[1..] {
            redis.restart_empty()?;
        }
        self.narrator.say(
            "redis-1 and redis-2 have lost the keys and the token counter. No pod can hold the lease until the\n\
             longest lease has passed, 15 s. The counter restarts above all tokens that a status shows.",
        );
        let next = self.wait("held again with a greater token", AFTER_THE_LONGEST_LEASE, |lease| {
            lease.is_active() && lease.attempt() != before.attempt() && lease.token() > before.token()
        })?;
        self.narrator.say(&format!("{} holds it, fencing token {} (greater)", holder(&next), token(&next)));
        self.see_roles(&next)?;
        self.wait_for_quorum("all nodes vote", SOON, |quorum| quorum.count("Up") == 3)?;
        self.show()?;
        self.now = Some(next);
        Ok(())
    }

    fn metrics_count_it(&mut self) -> Outcome {
        self.narrator.chapter("What the leader's /metrics counted");
        let metrics = self.replicas[self.leader()?].metrics()?;
        let mut shown = String::new();
        for name in [
            "redislease_lease_active",
            "redislease_lease_holder_info",
            "redislease_lease_fencing_token",
            "leader_election_master_status",
            "redislease_lease_transitions_total",
            "redislease_transitions_total",
            "redislease_lease_renewals_total",
            "redislease_lease_unheld_seconds_total",
            "redislease_quorum_nodes",
            "redislease_redis_restarts_total",
            "redislease_api_writes_total",
        ] {
            let lines = metrics.series(name, &[]).filter(|line| !line.ends_with(" 0"));
            shown.extend(lines.map(|line| format!("{line}\n")));
        }
        self.narrator.quote(&shown);
        // The replica that led at that time has counted it.
        let lost = [("quorum", "default"), ("reason", "RenewDeadline")];
        let mut counted = 0.0;
        for replica in self.replicas {
            counted += replica.metrics()?.value("redislease_transitions_total", &lost).unwrap_or_default();
        }
        if (counted - 1.0).abs() > f64::EPSILON {
            return Err(format!("One lost lease was counted as {counted}.").into());
        }
        Ok(())
    }

    /// The index of the replica that leads.
    fn leader(&self) -> Outcome<usize> {
        let quorum = self.installation.quorum()?;
        let named = quorum.leader().ok_or("No replica leads.")?;
        let place = (0..self.replicas.len()).find(|number| named == format!("operator-{number}"));
        place.ok_or_else(|| format!("The status names {named}, which is no replica.").into())
    }

    fn before(&self) -> Outcome<LeaseState> {
        self.now.clone().ok_or_else(|| "There is no holder yet.".into())
    }

    fn wait(
        &mut self,
        what: &str,
        within: Duration,
        mut wanted: impl FnMut(&LeaseState) -> bool,
    ) -> Outcome<LeaseState> {
        let narrator = &mut self.narrator;
        let wanted = |lease: &LeaseState| {
            narrator.tick();
            wanted(lease)
        };
        Ok(self.lease.wait(what, within, wanted)?)
    }

    fn wait_for_quorum(&mut self, what: &str, within: Duration, wanted: impl Fn(&QuorumState) -> bool) -> Outcome {
        let narrator = &mut self.narrator;
        self.installation.wait_for_quorum(what, within, |quorum| {
            narrator.tick();
            wanted(quorum)
        })?;
        Ok(())
    }

    fn wait_until(&self, what: &str, within: Duration, holds: impl Fn(&Self) -> Result<(), String>) -> Outcome {
        Ok(self.installation.wait_for(what, within, || holds(self))?)
    }

    fn kubectl(&self, args: &[&str]) -> Outcome<String> {
        Ok(self.installation.control_plane().kubectl(args)?)
    }

    fn see_roles(&mut self, lease: &LeaseState) -> Outcome {
        self.lease.wait_for_roles(lease, REPLICAS, SOON)?;
        self.narrator.say("Only its pod is labelled lease.redislease.io/billing: active");
        Ok(())
    }

    fn show(&mut self) -> Outcome {
        let table = self.kubectl(&["get", "redislease", "--namespace", NAMESPACE])?;
        self.narrator.quote(&format!("$ kubectl get redislease -n {NAMESPACE}\n{table}"));
        Ok(())
    }

    /// The time until which the term is valid without another renewal.
    fn deadline(&self) -> Outcome<Deadline> {
        let deadline = self.replicas[self.leader()?].metrics()?.deadline(&self.lease, STOP_BUDGET);
        deadline.ok_or_else(|| "/metrics shows no running term.".into())
    }
}

fn unchanged(before: &LeaseState, later: &LeaseState) -> Outcome {
    if later.continues(before) {
        return Ok(());
    }
    Err(format!("The lease should not have changed.\nbefore: {before}\nnow:    {later}").into())
}

fn offset(seconds: f64) -> String {
    format!("{:.2} s {}", seconds.abs(), if seconds < 0.0 { "before" } else { "after" })
}
