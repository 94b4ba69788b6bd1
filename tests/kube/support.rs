//! Shared by the tests: clusters, and helpers that read the keys on the Redis nodes.

use std::env;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redislease_lab::{
    Installation, InstallationOptions, Lease, LeaseState, Operator, PooledControlPlane, RedisServer, Result, SYSTEM,
};
use redislease_plan::api::{RedisQuorum, ValidQuorum};
use serde_json::{Value, json};

/// Limit for the first election of an operator, also of one whose Redis servers wait for maxLeaseDuration (10 s).
pub const FIRST_ELECTION: Duration = Duration::from_secs(30);
/// Limit for steps that do not wait for a lease. It tolerates a busy machine, and is short compared with a lease of 10 s.
pub const SOON: Duration = Duration::from_secs(5);
/// After this time, a key of a 10 s lease that is not extended has expired.
pub const AFTER_ONE_LEASE: Duration = Duration::from_secs(15);
/// The stop budget of a lease of the lab: the grace period of 3 s plus 1 s.
pub const STOP_BUDGET: Duration = Duration::from_secs(4);

/// A term that is not renewed is lost within this time.
pub const LONGER_THAN_A_LEASE: Duration = Duration::from_secs(12);
/// The interval between two checks of a state that must not change. It leaves CPU time to the processes under test.
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

    /// The attempt that it belongs to.
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
    /// A separate control plane on the shared Redis servers: for tests that stop the operator or the API server. The
    /// servers vote already, so the first election does not wait. Namespaces must differ from those of all other tests,
    /// because they are part of the keys.
    pub fn start() -> Result<Self> {
        Self::of(&options())
    }

    /// The same, with these options.
    pub fn of(options: &InstallationOptions) -> Result<Self> {
        let installation = installation_of(options)?;
        let operator = installation.start_operator("operator-0", &[])?;
        Ok(Self { operator, installation })
    }

    /// A separate control plane with separate Redis servers: for tests that stop servers or replace the quorum.
    pub fn with_own_redis(options: &InstallationOptions) -> Result<Self> {
        let installation = installation_on(options, options.start_redis()?)?;
        let operator = installation.start_operator("operator-0", &[])?;
        Ok(Self { operator, installation })
    }
}

pub fn options() -> InstallationOptions {
    InstallationOptions::new(env!("CARGO_BIN_EXE_redislease"))
}

/// A separate control plane on the shared Redis servers, without an operator.
pub fn installation() -> Result<Installation> {
    installation_of(&options())
}

fn installation_of(options: &InstallationOptions) -> Result<Installation> {
    installation_on(options, shared_redis().to_vec())
}

/// A separate control plane on these Redis servers, which vote, without an operator.
pub fn installation_on(options: &InstallationOptions, redis: Vec<Arc<RedisServer>>) -> Result<Installation> {
    let installation = Installation::install(options, PooledControlPlane::take()?, redis)?;
    admit(&installation)?;
    Ok(installation)
}

/// Makes the Redis servers vote at once, as if they had waited for the longest lease.
fn admit(installation: &Installation) -> Result<()> {
    let path = format!("/apis/redislease.io/v1alpha1/namespaces/{SYSTEM}/redisquorums/default");
    let quorum = installation.control_plane().get(&path)?.unwrap_or_default();
    let quorum: RedisQuorum = serde_json::from_value(quorum).expect("a RedisQuorum");
    let quorum = ValidQuorum::try_from(&quorum).expect("its spec is valid");
    let membership = format!("1:{}", quorum.fingerprint());
    installation.redis().iter().try_for_each(|server| server.admit(&quorum.key_prefix, &membership))
}

/// The cluster for all tests that only change objects in their own namespace. Its processes end with the test process.
pub fn shared() -> &'static Cluster {
    static SHARED: LazyLock<Cluster> = LazyLock::new(|| Cluster::start().expect("the shared cluster starts"));
    &SHARED
}

/// The same with an operator that may start pods, and scale and suspend workloads.
pub fn shared_with_rights() -> &'static Cluster {
    static SHARED: LazyLock<Cluster> = LazyLock::new(|| {
        let options =
            InstallationOptions { allow_scheduling_gate: true, allow_scale: true, allow_suspend: true, ..options() };
        Cluster::of(&options).expect("the shared cluster starts")
    });
    &SHARED
}

/// Runs `redislease` with this kubeconfig.
pub fn redislease(kubeconfig: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redislease"));
    command.args(args).env_clear().env("KUBECONFIG", kubeconfig).env("HOME", "/nowhere");
    command.output().expect("the binary runs")
}

/// Changes each rule of the operator's ClusterRole. Returns the rules before.
pub fn change_rules(installation: &Installation, change: impl FnMut(&mut Value)) -> Result<Value> {
    let role = ["get", "clusterrole", "redislease-operator", "--output=jsonpath={.rules}"];
    let before = installation.control_plane().kubectl(&role)?;
    let before: Value = serde_json::from_str(&before).expect("JSON");
    let mut after = before.clone();
    after.as_array_mut().expect("rules").iter_mut().for_each(change);
    set_rules(installation, &after)?;
    Ok(before)
}

/// Replaces the rules of the operator's ClusterRole.
pub fn set_rules(installation: &Installation, rules: &Value) -> Result<()> {
    let patch = json!({"rules": rules}).to_string();
    let args = ["patch", "clusterrole", "redislease-operator", "--type=merge", "--patch", &patch];
    installation.control_plane().kubectl(&args).map(drop)
}

/// How many more tests may use two control planes.
static TURNS: Mutex<u8> = Mutex::new(2);
static TURN_ENDS: Condvar = Condvar::new();

/// Permission to use two control planes, until it is dropped.
pub struct Turn(());

impl Drop for Turn {
    fn drop(&mut self) {
        *TURNS.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        TURN_ENDS.notify_one();
    }
}

/// Waits for the permission to use two control planes. A limited number of tests has it at a time: if many tests that each have one
/// control plane waited for a second, they would deadlock.
pub fn two_control_planes() -> Turn {
    let turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    *TURN_ENDS.wait_while(turns, |left| *left == 0).unwrap_or_else(PoisonError::into_inner) -= 1;
    Turn(())
}

/// Three Redis servers that no test stops.
pub fn shared_redis() -> &'static [Arc<RedisServer>] {
    static SHARED: LazyLock<Vec<Arc<RedisServer>>> =
        LazyLock::new(|| options().start_redis().expect("the shared Redis servers start"));
    &SHARED
}

/// The key of a lease on each node that answers, in the order of the nodes.
pub fn keys(installation: &Installation, namespace: &str, key: &str) -> Vec<Option<Key>> {
    keys_named(installation, &format!("redislease:lock:{namespace}/{key}"))
}

/// The key with this whole name on each node that answers, in the order of the nodes.
pub fn keys_named(installation: &Installation, name: &str) -> Vec<Option<Key>> {
    let read = |server: &RedisServer| {
        let value = server.command(&["GET", name]).ok()?.text()?;
        let left = server.command(&["PTTL", name]).ok()?.integer()?;
        Some(Key { value, left: Duration::from_millis(u64::try_from(left).ok()?) })
    };
    installation.redis().iter().map(|server| read(server)).collect()
}

/// The number of nodes on which the key belongs to this attempt and is in this stage.
pub fn count(keys: &[Option<Key>], attempt: &str, stage: &str) -> usize {
    keys.iter().flatten().filter(|key| key.attempt() == attempt && key.stage() == stage).count()
}

/// The number of nodes that have the key with this whole name. Each node must answer: one that does not may have it.
pub fn nodes_with(installation: &Installation, name: &str) -> Result<usize> {
    let mut found = 0;
    for server in installation.redis() {
        found += usize::from(server.command(&["EXISTS", name])?.integer() == Some(1));
    }
    Ok(found)
}

/// Waits until no node has the key of the lease `billing`.
pub fn no_key_is_left(installation: &Installation, namespace: &str) -> Result<()> {
    installation.wait_for("no key of the lease on any node", AFTER_ONE_LEASE, || {
        let found = nodes_with(installation, &format!("redislease:lock:{namespace}/billing"))?;
        if found == 0 { Ok(()) } else { Err(format!("{found} nodes have it")) }
    })
}

/// A secret in the operator's namespace.
pub fn secret(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": SYSTEM}, "stringData": data})
}

/// How often a test repeats its faults: `REDISLEASE_TEST_ROUNDS`. In a single round, which is the default, a test has those faults
/// that differ most.
pub fn rounds() -> usize {
    env::var("REDISLEASE_TEST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

/// For [`Operator::wait_for_metric`]: accepts exactly this value.
pub fn is(wanted: f64) -> impl FnMut(Option<f64>) -> bool {
    move |value| value == Some(wanted)
}

/// Waits until all pods of a lease are labelled `standby`.
pub fn no_pod_is_active(installation: &Installation, lease: &Lease<'_>) -> Result<()> {
    installation.wait_for("all pods are labelled standby", SOON, || match lease.roles() {
        Ok(roles) if roles.values().all(|role| role.label.as_deref() == Some("standby")) => Ok(()),
        other => Err(format!("{other:?}")),
    })
}

/// Runs `check` repeatedly for `span`, with the elapsed time. The check contains the assertions.
pub fn throughout(span: Duration, mut check: impl FnMut(Duration) -> Result<()>) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < span {
        check(began.elapsed())?;
        thread::sleep(CHECK_EVERY);
    }
    Ok(())
}

/// Checks for this long that the status shows the lease held in this term.
pub fn the_status_is_kept(lease: &Lease<'_>, term: &LeaseState, span: Duration) -> Result<()> {
    throughout(span, |after| {
        let now = lease.state()?;
        assert!(now.continues(term), "after {after:?}: {now}");
        Ok(())
    })
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
