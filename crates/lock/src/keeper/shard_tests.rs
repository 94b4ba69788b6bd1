use super::*;
use crate::keeper::handle::ShardHandle;
use crate::keeper::start::run;
use crate::keeper::{Observer, Policy};
use redislease_core::backoff::Backoff;
use redislease_core::invariants::Violation;
use redislease_core::lease::{Config, OnDeadline, Renewal, Standing, TermId, View};
use redislease_core::op::{Attempt, Holder, Token, Vote};
use redislease_core::quorum::Quorum;
use redislease_core::time::Drift;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The standings in the views, and their times; whether the machine ended.
#[derive(Clone, Default)]
struct Shown(Arc<Mutex<Vec<(Time, Standing)>>>, Arc<AtomicBool>);

impl Shown {
    /// Waits for the first view with this standing. Returns its time.
    async fn wait(&self, fits: impl Fn(&Standing) -> bool) -> Time {
        self.eventually(|shown| shown.0.lock().unwrap().iter().find_map(|(at, standing)| fits(standing).then_some(*at)))
            .await
    }

    async fn eventually<T>(&self, found: impl Fn(&Self) -> Option<T>) -> T {
        let polled = async {
            loop {
                if let Some(found) = found(self) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), polled)
            .await
            .unwrap_or_else(|_| panic!("{:?}", self.0.lock().unwrap()))
    }
}

impl Observer for Shown {
    fn renewed(&self, _: &Renewal, _: u64) {}
    fn changed(&self, view: &View) {
        self.0.lock().unwrap().push((clock::now(), view.standing.clone()));
    }
    fn ended(&self) {
        self.1.store(true, Ordering::SeqCst);
    }
}

/// A lease without nodes.
fn setup(config: Config, observer: impl Observer + 'static) -> Setup {
    let keys = ["k".to_owned()].into();
    Setup { nodes: None, keys, config, policy: None, jump_wait: None, observer: Box::new(observer) }
}

fn term() -> TermId {
    TermId { attempt: Attempt(7), token: Token(7), holder: Holder("pod".into()) }
}

/// Adopts a term without nodes: it becomes unconfirmed after one interval.
fn adopt(handle: &ShardHandle, views: &Shown) {
    let id = handle.open(setup(config(), views.clone()), None);
    handle.send(id, Command::Adopt(term()));
}

fn config() -> Config {
    Config {
        quorum: Quorum::of(3).unwrap(),
        ttl: Millis(2000),
        renew_interval: Millis(300),
        stop_budget: Millis(500),
        command_timeout: Millis(100),
        drift: Drift::STANDARD,
        backoff: Backoff::one_attempt(10),
        deadline: OnDeadline::Seal,
    }
}

#[tokio::test]
async fn a_shard_without_a_timer_still_keeps_its_deadlines() {
    let handle = ShardHandle::new();
    let shared = handle.0.clone();
    let views = Shown::default();
    let began = clock::now();
    adopt(&handle, &views);
    let mut running = Shard::new(shared, Arc::new(()));
    let at = tokio::select! {
        () = running.run(Err(io::ErrorKind::Other.into())) => panic!("it ended"),
        at = views.wait(|standing| matches!(standing, Standing::Uncertain(_))) => at,
    };
    assert!(at >= began + config().renew_interval, "{:?}", at.since(began));
    assert!(running.alarm.is_none());
}

/// Counts reports of panics.
#[derive(Debug, Default)]
struct Panics(AtomicUsize);

impl Panics {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl PanicObserver for Panics {
    fn panicked(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_shard_that_panics_drops_its_leases_and_takes_them_again() {
    let handle = ShardHandle::new();
    let panics = Arc::new(Panics::default());
    let shard = tokio::spawn(run(handle.0.clone(), panics.clone()));
    let before = Shown::default();
    adopt(&handle, &before);
    before.wait(|standing| matches!(standing, Standing::Uncertain(_))).await;
    assert_eq!(panics.count(), 0);

    assert!(handle.0.inbox.send(Message::Run(|| panic!("planted"))).is_ok());
    before.eventually(|shown| shown.1.load(Ordering::SeqCst).then_some(())).await;
    assert_eq!(panics.count(), 1);

    let after = Shown::default();
    adopt(&handle, &after);
    after.wait(|standing| matches!(standing, Standing::Uncertain(_))).await;
    assert_eq!((panics.count(), shard.is_finished()), (1, false));
    shard.abort();
}

/// The shutdown of a library waits for the end of its shard.
#[tokio::test]
async fn a_shard_that_panics_while_it_shuts_down_ends() {
    let requests: [fn(&ShardHandle); 2] = [ShardHandle::end_when_empty, ShardHandle::shut_down];
    for (request, is_first) in requests.into_iter().flat_map(|request| [(request, true), (request, false)]) {
        let handle = ShardHandle::new();
        let shard = tokio::spawn(run(handle.0.clone(), Arc::new(Panics::default())));
        let lease = Shown::default();
        adopt(&handle, &lease);
        lease.wait(|standing| matches!(standing, Standing::Uncertain(_))).await;
        if is_first {
            request(&handle);
        }
        assert!(handle.0.inbox.send(Message::Run(|| panic!("planted"))).is_ok());
        if !is_first {
            request(&handle);
        }
        tokio::time::timeout(Duration::from_secs(20), handle.ended()).await.expect("an end");
        shard.await.unwrap();
        assert!(lease.1.load(Ordering::SeqCst), "the lease was not told");
    }
}

/// A shard with terms whose last renewal has failed. The first term is the youngest, and each is a millisecond older.
fn after_an_outage(now: Time, leases: u64) -> Shard {
    let mut shard = Shard::new(ShardHandle::new().0, Arc::new(()));
    for age in 1..=leases {
        let id = shard.shared.take_id();
        let config = Config { ttl: Millis(60_000), renew_interval: Millis(5000), ..config() };
        let began = now - Millis(age);
        shard.now = began - Millis(6000);
        shard.tools.turns = Turns::new();
        let mut machine = Machine::new(id, setup(config, ()), &mut shard.tools.turns);
        machine.handle(shard.now, id, Input::Command(Command::Adopt(term()), None), None, &mut shard.tools);
        for (at, vote) in [(shard.now, Vote::Extended), (began, Vote::Unknown)] {
            machine.handle(at, id, Input::Wake, None, &mut shard.tools);
            for Ballot { round, node, .. } in requests(&shard) {
                let input = Input::Vote { round, node, vote: vote.clone() };
                machine.handle(at, id, input, None, &mut shard.tools);
            }
        }
        shard.slots.put(Box::new((id, machine)));
    }
    shard.now = now;
    shard
}

fn requests(shard: &Shard) -> Vec<Ballot> {
    let mut sent = Vec::new();
    shard.tools.ballots.take(&mut sent);
    sent
}

#[test]
fn when_a_majority_is_back_the_terms_have_turns_and_the_most_urgent_the_first() {
    let now = Time(1_000_003);
    // Fewer leases than the shard handles between two readings of the clock.
    let mut shard = after_an_outage(now, 30);
    // The turns of the outage are replaced.
    for _ in 0..100_000 {
        shard.tools.turns.round(now, now + Millis(60_000));
    }
    let told = |shard: &Shard| -> Vec<u32> {
        shard.broadcasts.iter().flat_map(|(_, leases)| leases.as_slice()).map(|id| id.slot).collect()
    };
    shard.tell_all(Input::MajorityReturned);
    let oldest_first: Vec<u32> = (0..30).rev().collect();
    assert_eq!(told(&shard), oldest_first);
    shard.take_broadcasts();
    let mut started: Vec<u32> = requests(&shard).iter().map(|ballot| ballot.lease.slot).collect();
    started.dedup();
    assert!((10..20).contains(&started.len()), "16 in a millisecond: {started:?}");
    assert_eq!(started, oldest_first[..started.len()]);
    let later = shard.slots.iter().filter(|(id, _)| !started.contains(&id.slot));
    let turns: Vec<Option<Time>> = later.map(|(_, machine)| machine.driver.next_deadline()).collect();
    assert!(turns.iter().all(|turn| *turn == Some(Time(1_000_010))), "{turns:?}");
}

/// A release reports a broken invariant. Without a planted bug, a debug build panics.
#[test]
fn a_lease_that_broke_an_invariant_loses_its_term_and_is_counted_once() {
    let panics = Arc::new(Panics::default());
    let mut shard = Shard::new(ShardHandle::new().0, panics.clone());
    let shown = Shown::default();
    let id = shard.shared.take_id();
    shard.now = Time(1_000_000);
    shard.open(id, setup(config(), shown.clone()), None);
    shard.with(id, Input::Command(Command::Adopt(term()), None));
    for Ballot { round, node, .. } in requests(&shard) {
        shard.with(id, Input::Vote { round, node, vote: Vote::Extended });
    }
    let last = |shown: &Shown| shown.0.lock().unwrap().last().map(|(_, standing)| standing.clone());
    assert!(matches!(last(&shown), Some(Standing::Held(_))), "{:?}", shown.0);

    let now = shard.now;
    let mut entry = shard.slots.take(id.slot).unwrap();
    entry.1.driver.lease_mut().break_invariant(now, Violation::BeliefPastDeadline);
    shard.slots.put(entry);
    shard.with(id, Input::Wake);
    shard.with(id, Input::Wake);
    assert_eq!((last(&shown), panics.count()), (Some(Standing::Idle), 1));
    assert!(!shown.1.load(Ordering::SeqCst), "a new machine takes its place");
}

/// Another thread may open a lease while the shard is told to end.
#[test]
fn a_lease_that_is_opened_after_the_shutdown_ends_at_once() {
    let mut shard = Shard::new(ShardHandle::new().0, Arc::new(()));
    let shown = Shown::default();
    shard.shut_down();
    let id = shard.shared.take_id();
    shard.open(id, setup(config(), shown.clone()), None);
    assert!(shown.1.load(Ordering::SeqCst));
    assert_eq!(shard.slots.len(), 0);
}

/// Counts how often a lease asks for its policy.
#[derive(Clone, Default)]
struct Asked(Arc<AtomicUsize>);

impl Policy for Asked {
    fn instead(&self, _: Time, _: &Input) -> Option<Command> {
        self.0.fetch_add(1, Ordering::SeqCst);
        None
    }
}

/// The number of a lease whose machine has panicked is used again, and its guard still sends a command.
#[test]
fn a_command_for_a_lease_that_has_ended_asks_nothing_of_the_next_one_in_its_place() {
    let mut shard = Shard::new(ShardHandle::new().0, Arc::new(()));
    let asked = Asked::default();
    let ended = shard.shared.take_id();
    shard.shared.give_back(ended);
    let id = shard.shared.take_id();
    let setup = Setup { policy: Some(Arc::new(asked.clone())), ..setup(config(), ()) };
    let mut machine = Machine::new(id, setup, &mut shard.tools.turns);
    for (to, count) in [(ended, 0), (id, 1)] {
        machine.handle(clock::now(), to, Input::Command(Command::Close, None), None, &mut shard.tools);
        assert_eq!(asked.0.load(Ordering::SeqCst), count, "{to:?}");
    }
}
