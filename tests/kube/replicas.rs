//! Two replicas of the operator elect a leader. No fault of one of them ends a term of a 15 s lease.
//!
//! Each test runs one round with the faults that differ most. `REDISLEASE_TEST_ROUNDS=10` runs ten with all faults.

use std::env;
use std::time::{Duration, Instant};

use redislease_lab::{
    Cut, Installation, InstallationOptions, Lease, LeaseState, Numbers, Operator, Peer, RedisServer, Result,
};
use serde_json::json;

use crate::support::{
    FIRST_ELECTION, SOON, count, installation_on, is, keys, keys_named, options, redislease, rounds, throughout,
};

/// The leases, all with the same candidates.
const NAMES: [&str; 3] = ["billing", "mail", "reports"];
/// The lock of a vanished leader expires after 5 s. Then another replica adopts all terms.
const TAKEOVER: Duration = Duration::from_secs(12);
/// Another replica checks every 0.3 s whether the lock was released. This limit tolerates a busy machine, and is shorter
/// than the lock.
const HANDOVER: Duration = Duration::from_millis(4500);
/// A leader without the API server notices after 2 s, waits for 5 s, and releases the lock.
const API_TAKEOVER: Duration = Duration::from_secs(15);
/// How many pauses of random lengths a round has.
const PAUSES: usize = 6;
/// Longer than the lock of a leader and the `stop_at` of a 15 s lease.
const FAULT: Duration = Duration::from_secs(12);
/// `leaseDuration`, `renewInterval` and `gracePeriod`, in seconds.
type Durations = [u64; 3];
/// The durations of most tests.
const USUAL: [Durations; 3] = [[15, 2, 5]; 3];
/// Durations that satisfy the formulas of docs/guarantees.md, with little more than a busy machine needs.
const SAFE: [Durations; 3] = [[15, 1, 7], [11, 2, 2], [12, 3, 1]];

/// Longer than the lock of a leader.
const SHORT_SUSPEND: Duration = Duration::from_secs(6);
/// A leader that wakes after its lock has ended stops leading at once. This limit tolerates a busy machine. On a clock that
/// does not count the suspend, the lock would last 3.4 s longer: 5 s less 1 % and 2 ms, 0.5 s for the stop, and 1 s since the
/// last renewal.
const AT_ONCE: Duration = Duration::from_secs(2);
/// The leader has sent a status write within this time: longer than the minimum pause of 1 s between two writes, and shorter than the
/// timeout of the write, which is 2 s.
const SENT: Duration = Duration::from_millis(1400);

/// The fault of one replica. Each has a recovery.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Stop,
    Kill,
    /// The process is stopped; all its clocks continue.
    Pause,
    /// The machine of the process is suspended: CLOCK_MONOTONIC stops too.
    Suspend,
    CutOff(&'static [Peer]),
}

/// The replica with the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Leader,
    Follower,
}

/// Two replicas that keep the leases in [`NAMES`].
struct Pair {
    replicas: Vec<Operator>,
    installation: Installation,
    terms: Vec<LeaseState>,
    durations: [Durations; 3],
}

impl Pair {
    fn start() -> Result<Self> {
        Self::of(USUAL)
    }

    /// One lease with each of these durations.
    fn of(durations: [Durations; 3]) -> Result<Self> {
        let quorum = json!({"maxLeaseDuration": "15s"});
        let options = InstallationOptions { proxied: true, suspendable: true, quorum, ..options() };
        let installation = installation_on(&options, options.start_redis()?)?;
        let replicas = installation.start_replicas(2)?;
        installation.deployment("jobs", "billing", 2)?;
        let candidates = json!({"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "billing"}});
        let mut terms = Vec::new();
        for (name, seconds) in NAMES.into_iter().zip(durations) {
            let [lease, renew, grace] = seconds.map(|seconds| format!("{seconds}s"));
            let spec =
                json!({"candidates": candidates, "leaseDuration": lease, "renewInterval": renew, "gracePeriod": grace});
            let lease = installation.lease("jobs", name, &spec)?;
            terms.push(lease.wait("active", FIRST_ELECTION + FIRST_ELECTION, LeaseState::is_active)?);
        }
        let pair = Self { replicas, installation, terms, durations };
        pair.settle(None)?;
        Ok(pair)
    }

    fn lease(&self, name: &str) -> Lease<'_> {
        self.installation.find_lease("jobs", name)
    }

    /// The index of the replica in the quorum's status, and of the other one.
    fn roles(&self) -> Result<[usize; 2]> {
        let named = self.installation.quorum()?.leader().unwrap_or_default().to_owned();
        let leader = usize::from(named == "operator-1");
        Ok([leader, 1 - leader])
    }

    /// Waits until exactly one replica leads and is in the status, and the terms are renewed on all nodes. `leader` is
    /// the expected replica.
    fn settle(&self, leader: Option<usize>) -> Result<()> {
        self.installation.wait_for("one replica leads and is named", TAKEOVER, || {
            let leads = |operator: &Operator| {
                let page = operator.metrics()?;
                Ok::<_, String>(page.value("leader_election_master_status", &[("name", "default")]) == Some(1.0))
            };
            let leads = [leads(&self.replicas[0])?, leads(&self.replicas[1])?];
            let [named, other] = self.roles()?;
            let expected = leader.is_none_or(|leader| leader == named);
            if leads[named] && !leads[other] && expected { Ok(()) } else { Err(format!("{leads:?}, named: {named}")) }
        })?;
        self.settle_terms()
    }

    /// Waits until the terms are renewed on all nodes.
    fn settle_terms(&self) -> Result<()> {
        for ((name, term), [lease, renew, _]) in NAMES.iter().zip(&self.terms).zip(self.durations) {
            let attempt = term.attempt().unwrap_or_default();
            let least = Duration::from_secs(lease - renew - 2);
            self.installation.wait_for(&format!("{name} is renewed"), SOON, || {
                let mut keys = keys(&self.installation, "jobs", name);
                keys.retain(|key| key.as_ref().is_some_and(|key| key.left >= least));
                if count(&keys, attempt, "t") == 3 { Ok(()) } else { Err(format!("{keys:?}")) }
            })?;
        }
        Ok(())
    }

    /// Asserts that no term has changed, and no status reports a change.
    fn assert_unmoved(&self, after: Duration, what: &str) -> Result<()> {
        for (name, term) in NAMES.iter().zip(&self.terms) {
            let now = self.lease(name).state()?;
            assert_eq!((now.attempt(), now.token()), (term.attempt(), term.token()), "{what}, {after:?}: {now}");
            // On a busy machine an adoption can take longer than one renewInterval. Then Active is Unknown for a moment.
            let active = now.condition("Active").map(|active| active.status);
            assert!(
                active.is_some_and(|active| active != "False"),
                "{what}, {after:?}: {now}\n{}",
                self.installation.log_tails()
            );
        }
        Ok(())
    }

    fn hurt(&self, victim: usize, fault: Fault, how: Cut) -> Result<()> {
        let replica = &self.replicas[victim];
        match fault {
            Fault::Stop => replica.stop().map(drop),
            Fault::Kill => replica.kill(),
            Fault::Pause => replica.pause(),
            Fault::Suspend => replica.suspend(),
            Fault::CutOff(from) => self.installation.cut_off(replica, from, how),
        }
    }

    fn heal(&self, victim: usize, fault: Fault) -> Result<()> {
        let replica = &self.replicas[victim];
        match fault {
            Fault::Stop | Fault::Kill => replica.start_again()?,
            Fault::Pause => replica.resume()?,
            Fault::Suspend => replica.wake()?,
            Fault::CutOff(_) => self.installation.reconnect(),
        }
        replica.wait_ready()
    }

    /// Injects one fault into one replica, and checks until the recovery.
    fn survives(&self, role: Role, fault: Fault, how: Cut) -> Result<()> {
        let [leader, follower] = self.roles()?;
        let victim = if role == Role::Leader { leader } else { follower };
        let what = format!("{fault:?} of the {role:?}, {how:?}");
        let transitions = self.installation.quorum()?.leader_transitions();
        self.hurt(victim, fault, how)?;
        let span = if matches!(fault, Fault::CutOff([Peer::ApiServer])) { API_TAKEOVER } else { FAULT };
        throughout(span, |after| self.assert_unmoved(after, &what))?;
        let quorum = self.installation.quorum()?;
        let moved = quorum.leader() != Some(&format!("operator-{leader}"));
        assert_eq!(moved, role == Role::Leader, "{what}: {quorum}");
        self.heal(victim, fault)?;
        throughout(SOON, |after| self.assert_unmoved(after, &format!("{what}, healed")))?;
        self.settle((role == Role::Leader).then_some(follower))?;
        let writes = self.installation.quorum()?.leader_transitions() - transitions;
        // A replica that was without the quorum for 10 s may claim leadership. The leader contradicts it with a second write.
        let claims = if matches!(fault, Fault::CutOff(_)) { 2 } else { 0 };
        let least = u64::from(role == Role::Leader);
        let allowed = least..=least + claims;
        assert!(allowed.contains(&writes), "{what}: {writes} changes of the leader");
        Ok(())
    }
}

/// Injects each fault into the replica with this role, for the configured number of rounds. A single round has the faults `few`.
fn nothing_moves(pair: &Pair, role: Role, few: &[Fault], all: &[Fault]) -> Result<()> {
    let faults = if rounds() == 1 { few } else { all };
    for round in 0..rounds() {
        let how = if round % 2 == 0 { Cut::Hang } else { Cut::Reset };
        for fault in faults {
            let began = Instant::now();
            pair.survives(role, *fault, how)?;
            println!("round {round}: {fault:?} of the {role:?}: nothing moved ({:.1?})", began.elapsed());
        }
    }
    Ok(())
}

const WITHOUT_REDIS: Fault = Fault::CutOff(&[Peer::Redis]);
const WITHOUT_API: Fault = Fault::CutOff(&[Peer::ApiServer]);
const WITHOUT_BOTH: Fault = Fault::CutOff(&[Peer::Redis, Peer::ApiServer]);
const ALL: [Fault; 7] =
    [Fault::Stop, Fault::Kill, Fault::Pause, Fault::Suspend, WITHOUT_REDIS, WITHOUT_API, WITHOUT_BOTH];

/// In a single round, the test of the formulas kills the leader and disconnects it from Redis, and the test of the handover stops it.
#[test]
fn no_lease_moves_whatever_happens_to_the_leader() -> Result<()> {
    nothing_moves(&Pair::start()?, Role::Leader, &[Fault::Pause, Fault::Suspend, WITHOUT_API], &ALL)
}

#[test]
fn no_lease_moves_whatever_happens_to_the_follower() -> Result<()> {
    nothing_moves(&Pair::start()?, Role::Follower, &[WITHOUT_BOTH], &ALL)
}

/// A leader that is stopped for about as long as its lock lasts wakes when the other replica has just begun to lead, and when
/// deadlines of its own have passed by less than a second.
#[test]
#[ignore = "make nightly"]
fn no_lease_moves_when_the_leader_is_paused_for_any_time() -> Result<()> {
    let pair = Pair::start()?;
    let seed = env::var("REDISLEASE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("REDISLEASE_TEST_SEED={seed}");
    let mut random = Numbers(seed);
    for round in 0..PAUSES * rounds() {
        let [leader, _] = pair.roles()?;
        // Mostly about as long as the lock, sometimes up to the longest that a term of 15 s survives without this replica.
        let millis = if round % 4 == 0 { 200 + random.below(29_800) } else { 4000 + random.below(7000) };
        let pause = Duration::from_millis(millis);
        let fault = if random.below(2) == 0 { Fault::Pause } else { Fault::Suspend };
        let what = format!("round {round}: {fault:?} of the leader for {pause:?}");
        pair.hurt(leader, fault, Cut::Hang)?;
        throughout(pause, |after| pair.assert_unmoved(after, &what))?;
        pair.heal(leader, fault)?;
        throughout(SOON, |after| pair.assert_unmoved(after, &format!("{what}, healed")))?;
        pair.settle(None)?;
        println!("{what}: nothing moved");
    }
    Ok(())
}

/// What `redislease doctor` prints.
fn doctor(installation: &Installation) -> String {
    let output = redislease(installation.control_plane().kubeconfig(), &["doctor"]);
    String::from_utf8(output.stdout).expect("text")
}

/// The formulas have two sides: a leader that dies, and one that is cut off from Redis.
#[test]
fn no_lease_moves_whose_durations_satisfy_the_formulas() -> Result<()> {
    let pair = Pair::of(SAFE)?;
    let said = doctor(&pair.installation);
    assert!(said.contains("No lease moves when one of two replicas of the operator fails."), "{said}");
    let faults = [Fault::Kill, WITHOUT_REDIS];
    nothing_moves(&pair, Role::Leader, &faults, &faults)
}

#[test]
fn a_stopping_leader_hands_over_at_once() -> Result<()> {
    let pair = Pair::start()?;
    let [leader, follower] = pair.roles()?;
    let cluster = ["get", "namespace", "kube-system", "--output=jsonpath={.metadata.uid}"];
    let lock = format!("redislease:leader:{}/default", pair.installation.control_plane().kubectl(&cluster)?);
    let held = keys_named(&pair.installation, &lock).into_iter().flatten().next().expect("the leader has the lock");
    let began = Instant::now();
    pair.replicas[leader].stop()?;
    println!("the leader has exited {:.2?} after SIGTERM", began.elapsed());
    let after = keys_named(&pair.installation, &lock);
    let left = after.iter().flatten().filter(|key| key.attempt() == held.attempt()).count();
    assert!(left < 2, "the lock is not released: {after:?}");
    let next = format!("operator-{follower}");
    pair.installation.wait_for_quorum("the follower leads", SOON, |now| now.leader() == Some(&next))?;
    let took = began.elapsed();
    println!("the next replica led {took:.2?} after SIGTERM");
    assert!(took < HANDOVER, "{took:?}");
    throughout(FAULT, |after| pair.assert_unmoved(after, "the leader was stopped"))?;
    pair.heal(leader, Fault::Stop)?;
    pair.settle(Some(follower))?;

    // Only the leader exports the metrics of the leases.
    let exported = |replica: usize, wanted: bool| {
        pair.replicas[replica].wait_for_metric("redislease_lease_held", &[("lease_namespace", "jobs")], SOON, |value| {
            value.is_some() == wanted
        })
    };
    exported(follower, true)?;
    exported(leader, false)
}

/// The write is delayed by the network, and arrives after another replica has taken over. The suspend keeps the leader from
/// giving up the call before the answer: the timeout of the call does not count it.
#[test]
fn a_late_write_of_a_leader_conflicts_and_changes_nothing() -> Result<()> {
    let pair = Pair::start()?;
    for _ in 0..rounds() {
        let [leader, follower] = pair.roles()?;
        let (late, next) = (&pair.replicas[leader], format!("operator-{follower}"));
        let conflict = [("kind", "quorum_status"), ("result", "conflict")];
        let conflicts = late.metrics()?.value("redislease_api_writes_total", &conflict).unwrap_or_default();

        pair.installation.cut_off(late, &[Peer::ApiServer], Cut::Hang)?;
        let stopped: &RedisServer = &pair.installation.redis()[0];
        stopped.process().kill()?;
        late.wait_for_metric("redislease_redis_up", &[("redis_node", "redis-0")], SOON, is(0.0))?;
        throughout(SENT, |after| pair.assert_unmoved(after, "the write is delayed"))?;
        late.suspend()?;
        let shown = |now: &redislease_lab::QuorumState| now.leader() == Some(&next) && now.count("Up") == 2;
        let before = pair.installation.wait_for_quorum("the next leader has shown the node", TAKEOVER + SOON, shown)?;
        pair.installation.reconnect();
        late.wake()?;

        late.wait_for_metric("redislease_api_writes_total", &conflict, SOON, |count| count > Some(conflicts))?;
        throughout(SOON, |after| {
            let now = pair.installation.quorum()?;
            assert_eq!(now.leader_transitions(), before.leader_transitions(), "{after:?}: {now}");
            pair.assert_unmoved(after, "a late write")
        })?;
        // It votes again after the longest lease.
        stopped.restart()?;
        pair.installation.wait_for_quorum("all nodes vote", FIRST_ELECTION, |now| now.count("Up") == 3)?;
        pair.settle(Some(follower))?;
    }
    Ok(())
}

/// Without an answer of the Redis nodes, only its own clock tells the leader that its lock has ended.
#[test]
fn a_leader_that_wakes_without_redis_stops_leading_at_once() -> Result<()> {
    let pair = Pair::start()?;
    for _ in 0..rounds() {
        let [leader, follower] = pair.roles()?;
        let suspended = &pair.replicas[leader];
        suspended.suspend()?;
        throughout(SHORT_SUSPEND, |after| pair.assert_unmoved(after, "suspended"))?;
        pair.installation.cut_off(suspended, &[Peer::Redis], Cut::Hang)?;
        suspended.wake()?;
        suspended.wait_for_metric("leader_election_master_status", &[("name", "default")], AT_ONCE, is(0.0))?;
        pair.installation.reconnect();
        throughout(SOON, |after| pair.assert_unmoved(after, "awake"))?;
        pair.settle(Some(follower))?;
    }
    Ok(())
}

#[test]
fn a_single_replica_that_was_paused_or_suspended_continues_with_the_same_terms() -> Result<()> {
    let pair = Pair::start()?;
    let [leader, follower] = pair.roles()?;
    pair.replicas[follower].stop()?;
    for _ in 0..rounds() {
        for fault in [Fault::Pause, Fault::Suspend] {
            // Longer than the lock and `stop_at` of a term, shorter than the TTL of the keys.
            pair.hurt(leader, fault, Cut::Hang)?;
            throughout(Duration::from_secs(10), |after| pair.assert_unmoved(after, &format!("{fault:?}")))?;
            pair.heal(leader, fault)?;
            throughout(SOON + SOON, |after| pair.assert_unmoved(after, &format!("{fault:?}, healed")))?;
            let leads = [("name", "default")];
            pair.replicas[leader].wait_for_metric("leader_election_master_status", &leads, TAKEOVER, is(1.0))?;
            // The next fault begins with keys that were just renewed.
            pair.settle_terms()?;
        }
    }
    Ok(())
}
