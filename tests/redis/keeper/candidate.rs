//! One process that contends for leases.

use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use redislease_core::backoff::Backoff;
use redislease_core::lease::{Config, OnDeadline, Publication, Renewal, Standing, TermId, TermView, View};
use redislease_core::op::{Attempt, Holder, Stored};
use redislease_core::quorum::Quorum;
use redislease_core::time::{Drift, Millis};
use redislease_lab::RedisServer;
use redislease_lock::clock;
use redislease_lock::keeper::{Command, Keeper, LeaseHandle, Observer, Setup};
use redislease_lock::nodes;
use tokio::sync::watch;

use super::history::{History, Loss};
use crate::support::{self, PATIENCE, PREFIX, World, addresses, eventually, get, membership};

/// Short, so that tests can wait for expiry.
pub fn lease() -> Config {
    Config {
        quorum: Quorum::of(3).unwrap(),
        ttl: Millis(2000),
        renew_interval: Millis(400),
        stop_budget: Millis(500),
        command_timeout: Millis(200),
        drift: Drift::STANDARD,
        backoff: Backoff::exponential(20, 200, 10),
        deadline: OnDeadline::Seal,
    }
}

/// For tests in which no deadline may pass, even on a busy machine.
pub fn patient() -> Config {
    Config { ttl: Millis(20_000), renew_interval: Millis(5000), command_timeout: Millis(2000), ..lease() }
}

/// Servers that vote at once, as after the quarantine, which has separate tests.
pub fn voters(count: usize) -> Vec<RedisServer> {
    let servers = support::servers(count);
    servers.iter().for_each(admit);
    servers
}

/// Lets an empty server vote, as after the quarantine.
pub fn admit(server: &RedisServer) {
    server.admit(PREFIX, &membership().name()).unwrap();
    // A process that is connected can have written its ticket before.
    let marker = format!("{}:{}", server.run_id().unwrap(), membership().name());
    server.command(&["SET", &format!("{PREFIX}:marker"), &marker]).unwrap();
}

/// Three servers that vote, and a process on them.
pub async fn three(config: &Config) -> (Vec<RedisServer>, World) {
    let servers = voters(3);
    let world = ready(&servers, config).await;
    (servers, world)
}

/// A process on these servers that keeps leases with `config`, which is also the longest lease.
pub fn process(servers: &[RedisServer], config: &Config) -> World {
    World::start(&nodes::Config {
        longest_lease: config.ttl,
        command_timeout: config.command_timeout,
        ..support::config(addresses(servers))
    })
}

/// The same, after every server votes.
pub async fn ready(servers: &[RedisServer], config: &Config) -> World {
    let world = process(servers, config);
    world.all_up().await;
    world
}

/// A candidate for the lease `k` of a process on three servers.
pub async fn candidate_of(config: &Config) -> (Vec<RedisServer>, World, Candidate) {
    let (servers, world) = three(config).await;
    let candidate = Candidate::on(&world, &["k"], config.clone());
    (servers, world, candidate)
}

/// The same, with a term on all servers.
pub async fn term_of(config: &Config) -> (Vec<RedisServer>, World, Candidate, TermId) {
    let (servers, world, candidate) = candidate_of(config).await;
    let id = candidate.hold_on_all("pod-1", &servers).await;
    (servers, world, candidate, id)
}

/// A term of [`lease`] on all of three servers.
pub async fn term() -> (Vec<RedisServer>, World, Candidate, TermId) {
    term_of(&lease()).await
}

/// A lease with one key.
pub fn setup(world: &World, key: &str, config: Config, observer: Box<dyn Observer>) -> Setup {
    let (nodes, keys) = (Some(world.nodes.clone()), [world.lock(key)].into());
    Setup { nodes, keys, config, policy: None, jump_wait: None, observer }
}

/// Stores the newest view, and passes everything on.
struct Watched {
    views: watch::Sender<View>,
    next: Box<dyn Observer>,
}

impl Observer for Watched {
    fn renewed(&self, renewal: &Renewal, ttl_ms: u64) {
        self.next.renewed(renewal, ttl_ms);
    }

    fn changed(&self, view: &View) {
        self.next.changed(view);
        self.views.send_replace(view.clone());
    }

    fn released(&self) {
        self.next.released();
    }

    fn ended(&self) {
        self.next.ended();
    }
}

/// Opens a lease. The receiver has its view, and is closed when the machine ends.
pub fn open_watched(keeper: &Keeper, setup: Setup) -> (LeaseHandle, watch::Receiver<View>) {
    let (views, receiver) = watch::channel(View::default());
    let observer = Box::new(Watched { views, next: setup.observer });
    (keeper.open(Setup { observer, ..setup }), receiver)
}

/// Waits for a view.
pub async fn wait(views: &mut watch::Receiver<View>, what: &str, fits: impl Fn(&View) -> bool) -> View {
    let waited = tokio::time::timeout(PATIENCE, views.wait_for(|view| fits(view))).await;
    let waited = waited.map(|view| view.unwrap_or_else(|_| panic!("the machine ended before {what}")).clone());
    waited.unwrap_or_else(|_| panic!("not {what}: {:?}", *views.borrow()))
}

/// The keeper of the test process, for the leases of all tests.
pub static KEEPER: LazyLock<Keeper> = LazyLock::new(|| Keeper::start(Arc::new(())).unwrap());

/// A process that contends for a lease again after a failure or a loss, until it forgets or ends it.
pub struct Candidate {
    handle: Arc<LeaseHandle>,
    views: watch::Receiver<View>,
    desired: Arc<Mutex<Option<Holder>>>,
    pub history: History,
    keys: Arc<[String]>,
}

impl Candidate {
    pub fn on(world: &World, keys: &[&str], config: Config) -> Self {
        let keys: Arc<[String]> = keys.iter().map(|key| world.lock(key)).collect();
        let history = History::default();
        let setup = Setup { keys: keys.clone(), ..setup(world, "", config, Box::new(history.clone())) };
        let (handle, views) = open_watched(&KEEPER, setup);
        let candidate = Self { handle: Arc::new(handle), views, desired: Arc::default(), history, keys };
        candidate.contend();
        candidate
    }

    /// Makes an attempt for the desired holder whenever one is due.
    fn contend(&self) {
        let (handle, mut views, desired) = (Arc::downgrade(&self.handle), self.views.clone(), self.desired.clone());
        tokio::spawn(async move {
            loop {
                let view = views.borrow_and_update().clone();
                let due = view.retry_at.is_some_and(|retry_at| retry_at <= clock::now());
                let holder = desired.lock().unwrap().clone().filter(|_| due);
                if let Some(holder) = holder {
                    let Some(handle) = handle.upgrade() else { return };
                    handle.command(Command::Want(holder));
                }
                let again = tokio::time::timeout(Duration::from_millis(10), views.changed()).await;
                if again.is_ok_and(|changed| changed.is_err()) {
                    return;
                }
            }
        });
    }

    pub fn view(&self) -> View {
        self.views.borrow().clone()
    }

    pub fn watch(&self) -> watch::Receiver<View> {
        self.views.clone()
    }

    pub fn want(&self, holder: &str) {
        let holder = Holder(holder.into());
        let before = self.desired.lock().unwrap().replace(holder.clone());
        self.handle.command(Command::Want(holder.clone()));
        // The backoff after many attempts was for the previous holder.
        if before != Some(holder) && self.view().refused_by.is_none() {
            self.handle.command(Command::TryNow);
        }
    }

    /// Gives a command after which the process contends no more.
    fn stop(&self, command: Command) {
        *self.desired.lock().unwrap() = None;
        self.handle.command(command);
    }

    pub fn forget(&self) {
        self.stop(Command::Forget);
    }

    pub fn end(&self, term: TermId, proof: bool) {
        self.stop(Command::End { term, proof });
    }

    pub fn adopt(&self, term: TermId) {
        self.handle.command(Command::Adopt(term));
    }

    pub fn published(&self, attempt: Attempt, outcome: Publication) {
        self.handle.command(Command::Published { attempt, outcome });
    }

    /// Waits for a view.
    pub async fn wait(&self, what: &str, fits: impl Fn(&View) -> bool) -> View {
        wait(&mut self.watch(), what, fits).await
    }

    /// Waits for a term that is ready to be published.
    pub async fn taken(&self) -> TermView {
        let view = self.wait("taken", |view| matches!(view.standing, Standing::Publishing(_))).await;
        view.standing.term().unwrap().clone()
    }

    /// Acquires the lease, publishes the term at once, and holds it.
    pub async fn hold(&self, holder: &str) -> TermId {
        self.want(holder);
        let id = self.taken().await.id;
        self.published(id.attempt, Publication::Written);
        self.held(&id).await;
        id
    }

    /// Holds a term that every server has, so that the next fault is the first one. On a busy machine this may be a later
    /// term than the first one.
    pub async fn hold_on_all(&self, holder: &str, servers: &[RedisServer]) -> TermId {
        self.want(holder);
        eventually("a term on all nodes", || async {
            match self.view().standing {
                Standing::Publishing(term) => self.published(term.id.attempt, Publication::Written),
                Standing::Held(term) if standing_on(self, servers, &term.id) == servers.len() => return Some(term.id),
                _ => {}
            }
            None
        })
        .await
    }

    pub async fn held(&self, id: &TermId) -> TermView {
        let held = |view: &View| matches!(&view.standing, Standing::Held(term) if term.id == *id);
        self.wait("held", held).await.standing.term().unwrap().clone()
    }

    /// Whether exactly this term runs and no other view was shown since it was held.
    pub fn has_kept(&self, id: &TermId) -> bool {
        let observed = self.history.observations();
        let is = |view: &View| matches!(&view.standing, Standing::Held(term) if term.id == *id);
        observed.views.iter().skip_while(|(_, view)| !is(view)).all(|(_, view)| is(view))
            && observed.views.last().is_some_and(|(_, view)| is(view))
    }

    pub async fn lost(&self) -> Loss {
        eventually("the loss to be declared", || async { self.history.loss() }).await
    }

    /// Waits for `count` successful rounds from now on.
    pub async fn renewed(&self, count: usize) {
        let so_far = self.history.renewed().len();
        eventually("renewals", || async { (self.history.renewed().len() >= so_far + count).then_some(()) }).await;
    }

    /// Waits longer than a term of [`lease`] lasts without renewals. The term continues.
    pub async fn outlives_a_ttl(&self, id: &TermId) {
        let rounds = lease().ttl.0 / lease().renew_interval.0 + 1;
        self.renewed(usize::try_from(rounds).unwrap()).await;
        assert!(self.has_kept(id), "{:?}", self.view());
    }

    /// The values of the keys on `server`.
    pub fn values(&self, server: &RedisServer) -> Vec<Option<Stored>> {
        self.keys.iter().map(|key| get(server, key).map(|value| value.parse().unwrap())).collect()
    }

    /// Whether every key on `server` has exactly this value of the term: `t`, or `s` when sealed.
    pub fn stands(&self, server: &RedisServer, stage: char, id: &TermId) -> bool {
        let value = format!("{stage}:{}:{}:{}", id.attempt, id.token, id.holder);
        self.keys.iter().all(|key| get(server, key).as_deref() == Some(&value))
    }

    /// Waits until the keys on these servers are the term's.
    pub async fn joined(&self, servers: &[RedisServer], id: &TermId) {
        for server in servers {
            self.comes_to_stand(server, 't', id).await;
        }
    }

    /// Waits until the keys on these servers are the term's, and sealed.
    pub async fn sealed(&self, servers: &[RedisServer], id: &TermId) {
        for server in servers {
            self.comes_to_stand(server, 's', id).await;
        }
    }

    async fn comes_to_stand(&self, server: &RedisServer, stage: char, id: &TermId) {
        let start = clock::now();
        while !self.stands(server, stage, id) {
            assert!(
                clock::now().since(start) < PATIENCE.into(),
                "not `{stage}` of {id:?} but {:?} on {}, after\n{}",
                self.values(server),
                server.address(),
                self.history.story(),
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn is_free(&self, server: &RedisServer) -> bool {
        self.values(server).iter().all(Option::is_none)
    }

    pub async fn free(&self, servers: &[RedisServer]) {
        for server in servers {
            eventually("the keys to be gone", || async { self.is_free(server).then_some(()) }).await;
        }
    }
}

/// The number of servers that have the term.
pub fn standing_on(candidate: &Candidate, servers: &[RedisServer], id: &TermId) -> usize {
    servers.iter().filter(|server| candidate.stands(server, 't', id)).count()
}
