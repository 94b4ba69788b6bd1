//! The clock of an operator stands still, as on a virtual machine that is paused or migrated.

use std::time::Duration;

use redislease_lab::{Cut, Installation, InstallationOptions, LeaseState, Operator, Peer, QuorumState, Result};
use serde_json::json;

use crate::support::{FIRST_ELECTION, SOON, installation_on, options, rounds, throughout, two_control_planes};

/// The lock of a leader lasts 5 s. The replica whose clock stood still waits for that before it contends again.
const TAKEOVER: Duration = Duration::from_secs(12);

/// Two replicas in one cluster, and an operator in another one, on the same Redis servers.
struct World {
    here: Installation,
    replicas: Vec<Operator>,
    ours: LeaseState,
    there: Installation,
    _operator: Operator,
    theirs: LeaseState,
}

impl World {
    fn start() -> Result<Self> {
        let quorum = json!({"maxLeaseDuration": "15s"});
        let options = InstallationOptions { proxied: true, quorum, ..options() };
        let redis = options.start_redis()?;
        let here = installation_on(&options, redis.clone())?;
        let there = installation_on(&options, redis)?;
        let replicas = here.start_replicas(2)?;
        let operator = there.start_operator("operator-0", &[])?;
        let ours = held(&here, "here")?;
        let theirs = held(&there, "there")?;
        let world = Self { here, replicas, ours, there, _operator: operator, theirs };
        world.leader()?;
        Ok(world)
    }

    /// The replica that the status names as leader.
    fn leader(&self) -> Result<usize> {
        let named = |now: &QuorumState| now.leader().is_some() && now.count("Up") == 3;
        let quorum = self.here.wait_for_quorum("a leader", TAKEOVER, named)?;
        Ok(usize::from(quorum.leader() == Some("operator-1")))
    }

    /// No term has changed, each is held, and no node waits.
    fn assert_unharmed(&self, what: &str, after: Duration) -> Result<()> {
        for (installation, namespace, before) in
            [(&self.here, "here", &self.ours), (&self.there, "there", &self.theirs)]
        {
            let now = installation.find_lease(namespace, "billing").state()?;
            let same = (now.attempt(), now.token()) == (before.attempt(), before.token());
            let lost = now.condition("Active").is_none_or(|active| active.status == "False");
            assert!(same && !lost, "{what}, {after:?}: {now}\n{}", installation.log_tails());
        }
        for server in self.here.redis() {
            let marker = server.command(&["GET", "redislease:marker"])?.text().unwrap_or_default().clone();
            assert!(!marker.is_empty() && !marker.starts_with("wait:"), "{what}, {after:?}: {marker}");
        }
        Ok(())
    }
}

fn held(installation: &Installation, namespace: &str) -> Result<LeaseState> {
    installation.deployment(namespace, "billing", 2)?;
    let durations = json!({"leaseDuration": "15s", "renewInterval": "2s", "gracePeriod": "5s"});
    let lease = installation.lease(namespace, "billing", &durations)?;
    lease.wait("active", FIRST_ELECTION + FIRST_ELECTION, LeaseState::is_active)
}

const STOOD_STILL: &str = "the clock of this process stood still";

/// The number of lines of the operator's log that have this text.
fn lines(operator: &Operator, text: &str) -> usize {
    operator.log().iter().filter(|line| line.to_string().contains(text)).count()
}

/// Waits until the operator's log has more than so many lines with one of these texts.
fn says_again(world: &World, operator: &Operator, texts: &[&str], before: usize) -> Result<()> {
    world.here.wait_for(texts[0], SOON, || {
        let now: usize = texts.iter().map(|text| lines(operator, text)).sum();
        if now > before { Ok(()) } else { Err(format!("{now} lines say so")) }
    })
}

#[test]
fn an_operator_whose_clock_stands_still_harms_nobody_and_keeps_its_terms() -> Result<()> {
    let _turn = two_control_planes();
    let world = World::start()?;
    let mut lost = [Duration::ZERO; 2];
    let pauses: &[u64] = if rounds() == 1 { &[150, 3000] } else { &[150, 300, 3000] };
    for (round, millis) in pauses.iter().enumerate() {
        let leader = world.leader()?;
        let (victim, other) = (&world.replicas[leader], format!("operator-{}", 1 - leader));
        let what = format!("round {round}: {millis} ms");
        let before = lines(victim, STOOD_STILL);
        lost[leader] += Duration::from_millis(*millis);
        victim.lose_time(lost[leader])?;
        says_again(&world, victim, &[STOOD_STILL], before)?;
        throughout(SOON, |after| world.assert_unharmed(&what, after))?;
        world.here.wait_for_quorum("the other replica leads", TAKEOVER, |now| now.leader() == Some(&other))?;
        throughout(SOON, |after| world.assert_unharmed(&what, after))?;
    }

    // The same while it is disconnected: the connections to the Redis servers break, and come back after the pause.
    let leader = world.leader()?;
    let victim = &world.replicas[leader];
    let lost_nodes = ["the connection is lost", "Down"];
    let (stood_still, disconnected) = (lines(victim, STOOD_STILL), lost_nodes.map(|text| lines(victim, text)));
    world.here.cut_off(victim, &[Peer::Redis], Cut::Reset)?;
    says_again(&world, victim, &lost_nodes, disconnected.iter().sum())?;
    victim.lose_time(lost[leader] + Duration::from_millis(700))?;
    throughout(Duration::from_secs(2), |after| world.assert_unharmed("disconnected", after))?;
    world.here.reconnect();
    says_again(&world, victim, &[STOOD_STILL], stood_still)?;
    throughout(SOON, |after| world.assert_unharmed("connected again", after))
}
