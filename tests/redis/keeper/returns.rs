//! A server votes again: the terms that it does not hold are joined before the next renewal, many of them at a limited rate.

use redislease_core::lease::{Config, Standing, TermId};
use redislease_core::op::{Attempt, Holder, Token};
use redislease_core::time::{Millis, Time};
use redislease_lab::RedisServer;
use redislease_lock::clock;
use redislease_lock::keeper::{Command, LeaseHandle};
use redislease_lock::nodes::NodeState;

use super::candidate::{Candidate, KEEPER, admit, lease, open_watched, setup, three};
use super::history::History;
use crate::support::{World, calls, eventually, write_terms};

/// The renewals are so far apart that they do not join the server in time.
fn slow() -> Config {
    Config { ttl: Millis(24_000), renew_interval: Millis(8000), command_timeout: Millis(1000), ..lease() }
}

/// The last server is killed and comes back empty. Returns when it votes.
async fn comes_back_empty(servers: &[RedisServer], world: &World) -> Time {
    servers[2].process().kill().unwrap();
    world.wait(2, "down", |status| status.state == NodeState::Down).await;
    servers[2].restart_empty().unwrap();
    admit(&servers[2]);
    world.up(2).await;
    clock::now()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_returns_is_joined_before_the_next_renewal_and_another_may_fail() {
    let (servers, world) = three(&slow()).await;
    let mut held = Vec::new();
    // Their renewals are at different times: without the joins, a few of them would be joined soon, too.
    for number in 0..8 {
        let candidate = Candidate::on(&world, &[&format!("k-{number}")], slow());
        let id = candidate.hold_on_all("pod-1", &servers).await;
        held.push((candidate, id));
    }

    let returned = comes_back_empty(&servers, &world).await;
    for (candidate, id) in &held {
        candidate.joined(&servers[2..], id).await;
    }
    let took = clock::now().since(returned);
    assert!(took < Millis(2000), "the server votes, and holds all terms only after {took:?}");

    servers[0].process().kill().unwrap();
    let killed = clock::now();
    for (candidate, id) in &held {
        let renewed = || candidate.history.renewed().last().is_some_and(|last| *last > killed);
        eventually("a renewal by the other two", || async { renewed().then_some(()) }).await;
        assert!(candidate.has_kept(id), "{}", candidate.history.story());
    }
}

/// Adopts the terms of the leases `many-1`, `many-2`, …, which `write_terms` has written. The handles keep them.
async fn adopt_many(world: &World, count: usize) -> (Vec<LeaseHandle>, Vec<History>) {
    let mut adopted = Vec::new();
    for number in 1..=count as u64 {
        let history = History::default();
        let key = format!("many-{number}");
        let (handle, views) = open_watched(&KEEPER, setup(world, &key, slow(), Box::new(history.clone())));
        let (attempt, token, holder) = (Attempt(number.into()), Token(number), Holder("pod-many".into()));
        handle.command(Command::Adopt(TermId { attempt, token, holder }));
        adopted.push((views, (handle, history)));
    }
    for (views, _) in &adopted {
        eventually("adopted", || async { matches!(views.borrow().standing, Standing::Held(_)).then_some(()) }).await;
    }
    adopted.into_iter().map(|(_, kept)| kept).unzip()
}

/// How many of these leases have a term on the server.
fn terms_of_many(server: &RedisServer, world: &World, count: usize) -> usize {
    let script = "local held = 0 \
                  for i = 1, ARGV[2] do \
                    if (redis.call('GET', ARGV[1] .. i) or ''):sub(1, 2) == 't:' then held = held + 1 end \
                  end \
                  return held";
    let held = server.command(&["EVAL", script, "0", &world.lock("many-"), &count.to_string()]).unwrap();
    usize::try_from(held.integer().unwrap()).unwrap()
}

/// The adoptions and the joins of one tenant's many leases against the renewals and an acquire of another tenant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_leases_delay_no_other() {
    const MANY: usize = 4000;
    let often = Config { renew_interval: Millis(500), ..slow() };
    let (servers, world) = three(&slow()).await;
    let own = Candidate::on(&world, &["own"], often.clone());
    let id = own.hold_on_all("pod-own", &servers).await;
    for server in &servers {
        write_terms(server, &world.lock("many-"), MANY, "pod-many", slow().ttl);
    }
    let start = clock::now();
    let (_handles, histories) = adopt_many(&world, MANY).await;

    let returned = comes_back_empty(&servers, &world).await;
    let (joins, renewals) = (calls(&servers[2], "evalsha"), calls(&servers[1], "evalsha"));
    let other = Candidate::on(&world, &["other"], slow());
    other.hold("pod-other").await;
    let acquired = clock::now().since(returned);
    let all = || terms_of_many(&servers[2], &world, MANY) == MANY;
    eventually("every term on the server", || async { all().then_some(()) }).await;
    let took = clock::now().since(returned);
    let (joins, renewals) = (calls(&servers[2], "evalsha") - joins, calls(&servers[1], "evalsha") - renewals);
    let longest = own.history.longest_pause(start);
    println!(
        "{MANY} terms joined in {took:?} with {joins} calls of the server that returned and {renewals} of another; an acquire \
         took {acquired:?}, the longest time between two renewals was {longest:?}"
    );
    assert!(took.0 < slow().renew_interval.0 / 2, "no sooner than the renewals: {took:?}");
    assert!(acquired < Millis(1000), "an acquire during {MANY} joins took {acquired:?}");
    assert!(longest < often.renew_interval + Millis(1000), "{longest:?} between two renewals: {}", own.history.story());
    assert!(own.has_kept(&id), "{}", own.history.story());
    // Each term needs two extensions, an acquire and a confirm there, and two extensions elsewhere.
    let most = u64::try_from(MANY).unwrap();
    assert!(joins < most && renewals < most / 2, "{joins} and {renewals} calls for {MANY} terms");
    let unsure = |history: &History| {
        history.observations().views.iter().any(|(_, view)| matches!(view.standing, Standing::Uncertain(_)))
    };
    assert!(!histories.iter().any(unsure), "a term was unconfirmed");
}
