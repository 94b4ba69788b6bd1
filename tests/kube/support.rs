//! Shared by the tests: clusters to run on, and helpers that read the keys on the Redis nodes.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redislease_lab::{
    Components, ControlPlane, Installation, InstallationOptions, Lease, Operator, RedisServer, Result,
};

/// Limit for the first election on a new quorum, which waits for maxLeaseDuration (10 s).
pub const FIRST_ELECTION: Duration = Duration::from_secs(30);
/// Limit for what waits for no lease. It leaves time for a busy machine, and is short compared with a lease of 10 s.
pub const SOON: Duration = Duration::from_secs(5);
/// After it, no key of a lease of 10 s is left that is not extended.
pub const AFTER_ONE_LEASE: Duration = Duration::from_secs(15);

/// A term that is not renewed ends within this.
const LONGER_THAN_A_LEASE: Duration = Duration::from_secs(12);
/// Time between two checks of a state that must not change. It leaves the CPU to the processes that are checked.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// One key on one node: its value and its remaining lifetime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// `<stage>:<attempt>:<number>:<metadata>`.
    pub value: String,
    pub left: Duration,
}

impl Key {
    /// The letter of its stage.
    pub fn stage(&self) -> &str {
        self.value.split(':').next().unwrap_or_default()
    }

    /// The attempt it belongs to.
    pub fn attempt(&self) -> &str {
        self.value.split(':').nth(1).unwrap_or_default()
    }

    /// The grant number or token.
    pub fn number(&self) -> u64 {
        self.value.split(':').nth(2).and_then(|number| number.parse().ok()).unwrap_or_default()
    }
}

/// A control plane with RedisLease installed and one operator.
pub struct Cluster {
    /// Declared first, so that it stops before the servers that it uses.
    pub operator: Operator,
    pub installation: Installation,
}

impl Cluster {
    /// A control plane of its own on the Redis servers that tests share: for tests that stop the operator or the API
    /// server. The servers vote already, so the first election does not wait. Namespaces must differ from those of all
    /// other tests, because they are part of the keys.
    pub fn start() -> Result<Self> {
        let installation = installation()?;
        let operator = installation.start_operator("operator-0", &[])?;
        Ok(Self { operator, installation })
    }

    /// A control plane and Redis servers of its own: for tests that stop servers or replace the quorum.
    pub fn with_own_redis(options: &InstallationOptions) -> Result<Self> {
        let installation = Installation::start(options)?;
        let operator = installation.start_operator("operator-0", &[])?;
        Ok(Self { operator, installation })
    }
}

pub fn options() -> InstallationOptions {
    InstallationOptions::new(env!("CARGO_BIN_EXE_redislease"))
}

/// A control plane of its own on the shared Redis servers, without an operator.
pub fn installation() -> Result<Installation> {
    let options = options();
    let control_plane = ControlPlane::start(Components::Nodes(options.nodes))?;
    Installation::install(&options, control_plane, shared_redis().to_vec())
}

/// The cluster for all tests that only change objects in a namespace of their own. Its processes end with this one.
pub fn shared() -> &'static Cluster {
    static SHARED: LazyLock<Cluster> = LazyLock::new(|| Cluster::start().expect("the shared cluster starts"));
    &SHARED
}

/// Permission to start two control planes. Three run at a time, and the shared one is one of them: two tests that each
/// have one of their own and wait for a second would wait for each other.
pub fn two_control_planes() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Three Redis servers that no test stops.
pub fn shared_redis() -> &'static [Arc<RedisServer>] {
    static SHARED: LazyLock<Vec<Arc<RedisServer>>> =
        LazyLock::new(|| options().start_redis().expect("the shared Redis servers start"));
    &SHARED
}

/// The key of a lease on each node that answers, in the order of the nodes.
pub fn keys(installation: &Installation, namespace: &str, key: &str) -> Vec<Option<Key>> {
    let name = format!("redislease:lock:{namespace}/{key}");
    let read = |server: &RedisServer| {
        let value = server.command(&["GET", &name]).ok()?.text()?;
        let left = server.command(&["PTTL", &name]).ok()?.integer()?;
        Some(Key { value, left: Duration::from_millis(u64::try_from(left).ok()?) })
    };
    installation.redis().iter().map(|server| read(server)).collect()
}

/// The number of nodes on which the key belongs to this attempt and is in this stage.
pub fn count(keys: &[Option<Key>], attempt: &str, stage: &str) -> usize {
    keys.iter().flatten().filter(|key| key.attempt() == attempt && key.stage() == stage).count()
}

/// For [`Operator::wait_for_metric`]: accepts exactly this value.
pub fn is(wanted: f64) -> impl FnMut(Option<f64>) -> bool {
    move |value| value == Some(wanted)
}

/// Waits until all pods of a lease are labelled `standby`.
pub fn nobody_is_active(installation: &Installation, lease: &Lease<'_>) -> Result<()> {
    installation.wait_for("all pods are labelled standby", SOON, || match lease.roles() {
        Ok(roles) if roles.values().all(|role| role.label.as_deref() == Some("standby")) => Ok(()),
        other => Err(format!("{other:?}")),
    })
}

/// Runs `check` again and again for `span`, with the time since the beginning. The check contains the assertions.
pub fn throughout(span: Duration, mut check: impl FnMut(Duration) -> Result<()>) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < span {
        check(began.elapsed())?;
        thread::sleep(CHECK_EVERY);
    }
    Ok(())
}

/// Checks for longer than a lease that a majority of the nodes has the term, and that no node has sealed it.
pub fn the_term_is_kept(installation: &Installation, namespace: &str, attempt: &str) -> Result<()> {
    throughout(LONGER_THAN_A_LEASE, |after| {
        let keys = keys(installation, namespace, "billing");
        assert!(count(&keys, attempt, "t") >= 2, "after {after:?}: {keys:?}");
        assert_eq!(keys.iter().flatten().filter(|key| key.stage() == "s").count(), 0, "after {after:?}: {keys:?}");
        Ok(())
    })
}
