//! Limits how many control planes run in one process, and lets tests use one after another: each takes about 540 MiB, and its start
//! about ten seconds of processor time.

use std::{
    ops::Deref,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::plane::{Components, ControlPlane, Permit};
use super::servers::{DUAL_STACK, RealNodes, SINGLE_STACK};
use crate::{Condition, Error, Result, wait};

/// The tests on a control plane wait most of the time. Two of these are shared until the process ends, and two tests at a time need
/// two of the others: with fewer than five these would deadlock.
const AT_ONCE: usize = 8;
/// A test takes a minute or two. A longer wait means that the waiting test itself holds a control plane.
const WAIT: Duration = Duration::from_mins(20);
/// The controller-manager removes a namespace 5 s after its deletion.
const CLEARED: Duration = Duration::from_secs(30);
/// The nodes of a control plane of the pool.
const NODES: usize = 3;
/// What belongs to no namespace and is made by tests.
const CLUSTER_SCOPED: &str = "namespaces,clusterroles,clusterrolebindings,\
                              validatingadmissionpolicies,validatingadmissionpolicybindings,\
                              mutatingadmissionpolicies,mutatingadmissionpolicybindings";
/// The names of what Kubernetes itself makes of that. Others begin with `kube-` or `system:`.
const BUILT_IN: [&str; 5] = ["default", "admin", "edit", "view", "cluster-admin"];
/// What makes pods. They are removed before the pods, and these before their namespaces, whose removal would wait for them.
const WORKLOADS: &str = "cronjobs,jobs,deployments,statefulsets,daemonsets,replicasets";

struct Pool {
    running: usize,
    /// Cleared control planes that no test uses. The first one is the one that was given back first.
    idle: Vec<ControlPlane>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { running: 0, idle: Vec::new() });
static CHANGED: Condvar = Condvar::new();

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn release() {
    pool().running -= 1;
    CHANGED.notify_all();
}

/// Waits until fewer than the limit run. A control plane that no test uses is stopped to make room.
fn permit() -> Result<Permit> {
    match permit_or_idle(false)? {
        Found::Permit(permit) => Ok(permit),
        Found::Idle(unused) => {
            drop(unused);
            permit()
        }
    }
}

enum Found {
    Permit(Permit),
    Idle(Box<ControlPlane>),
}

/// Waits for a permit or a control plane that no test uses, whichever is preferred if both are there.
fn permit_or_idle(idle_first: bool) -> Result<Found> {
    let deadline = Instant::now() + WAIT;
    let mut pool = pool();
    loop {
        let has_room = pool.running < AT_ONCE;
        if !pool.idle.is_empty() && (idle_first || !has_room) {
            return Ok(Found::Idle(Box::new(pool.idle.remove(0))));
        }
        if has_room {
            pool.running += 1;
            return Ok(Found::Permit(Permit(release)));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let last = format!("{AT_ONCE} run, which is the limit");
            return Err(Error::not_in_time("a control plane of this process has stopped", WAIT, last));
        }
        pool = CHANGED.wait_timeout(pool, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// A control plane of an installation. If it is from the pool, another test uses it when it is dropped: without the
/// objects of this test, and with the CRDs. One whose processes a test has stopped, or that is marked with
/// [`ControlPlane::not_again`], is not used again.
#[derive(Debug)]
pub struct PooledControlPlane {
    /// `None` while it is dropped.
    inner: Option<ControlPlane>,
    returns: bool,
}

impl PooledControlPlane {
    /// Takes a control plane with three nodes that no other test uses, or starts one.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub fn take() -> Result<Self> {
        loop {
            let inner = match permit_or_idle(true)? {
                Found::Permit(permit) => ControlPlane::start_with(permit, Components::Nodes(NODES), SINGLE_STACK)?,
                Found::Idle(unused) => match unused.wait_cleared() {
                    Ok(()) => *unused,
                    Err(error) => {
                        eprintln!("a control plane is not used again: {error}");
                        continue;
                    }
                },
            };
            return Ok(Self { inner: Some(inner), returns: true });
        }
    }
}

impl From<ControlPlane> for PooledControlPlane {
    /// A control plane of one test alone. It stops when it is dropped.
    fn from(own: ControlPlane) -> Self {
        Self { inner: Some(own), returns: false }
    }
}

impl Deref for PooledControlPlane {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        self.inner.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for PooledControlPlane {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        let is_fit = self.returns && !thread::panicking() && !inner.is_used_up();
        if is_fit && inner.clear().is_ok() {
            pool().idle.push(inner);
            CHANGED.notify_all();
        }
    }
}

impl ControlPlane {
    /// Starts a control plane and waits until it serves; with [`Components::Nodes`], until a pod can be created and run.
    /// At most eight run in one process: another one waits until one of them stops.
    ///
    /// # Errors
    /// [`Error::MissingTool`] before `make tools`; [`Error::Exited`] or [`Error::NotReady`] with the end of the log
    /// of the process that did not come up; [`Error::LongFolder`] when TMPDIR is too long for sockets.
    pub fn start(components: Components) -> Result<Self> {
        Self::start_with(permit()?, components, SINGLE_STACK)
    }

    /// The same with two address families for Services. A pod with the annotation `lab.redislease.io/dual-stack` also has an
    /// IPv6 address.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_dual_stack(components: Components) -> Result<Self> {
        Self::start_with(permit()?, components, DUAL_STACK)
    }

    /// Starts a control plane for real nodes and waits until a pod can be created.
    pub(crate) fn start_for(nodes: &RealNodes) -> Result<Self> {
        Self::start_real(permit()?, nodes)
    }

    /// Begins to remove what a test has made. The CRDs stay.
    fn clear(&self) -> Result<()> {
        let everywhere = ["--all", "--all-namespaces", "--wait=false"];
        self.kubectl(&[&["delete", WORKLOADS], &everywhere[..]].concat())?;
        self.kubectl(&[&["delete", "pods", "--force", "--grace-period=0"], &everywhere[..]].concat())?;
        let all = self.kubectl(&["get", CLUSTER_SCOPED, "--output=name"])?;
        let made: Vec<&str> = all.lines().filter(|object| !is_built_in(object)).collect();
        if made.is_empty() {
            return Ok(());
        }
        self.kubectl(&[&["delete", "--wait=false", "--ignore-not-found"], &made[..]].concat()).map(drop)
    }

    /// Waits until what a test has made is gone, and checks the nodes.
    fn wait_cleared(&self) -> Result<()> {
        let gone = wait::poll(CLEARED, || {
            let namespaces = self.get("/api/v1/namespaces").map_err(|error| error.to_string())?.unwrap_or_default();
            let left = names(&namespaces).find(|name| !is_built_in(name)).map(str::to_owned);
            left.map_or(Ok(()), |left| Err(format!("there is the namespace {left}")))
        });
        let nodes = self.get("/api/v1/nodes")?.unwrap_or_default();
        let ready = nodes["items"].as_array().into_iter().flatten().filter(|node| is_usable(node)).count();
        let problem = match gone {
            Ok(()) if ready == NODES => return Ok(()),
            Ok(()) => format!("{ready} of its {NODES} nodes can be used"),
            Err(left) => left,
        };
        Err(Error::not_in_time("the objects of a test are gone", CLEARED, problem))
    }
}

/// Whether Kubernetes itself has made it. The name can have the kind before a slash.
fn is_built_in(object: &str) -> bool {
    let name = object.rsplit('/').next().unwrap_or_default();
    name.starts_with("kube-") || name.starts_with("system:") || BUILT_IN.contains(&name)
}

fn names(list: &Value) -> impl Iterator<Item = &str> {
    list["items"].as_array().into_iter().flatten().filter_map(|object| object["metadata"]["name"].as_str())
}

/// Whether a node is as it was at the start.
fn is_usable(node: &Value) -> bool {
    Condition::is_true(node, "Ready")
        && node["spec"].get("taints").is_none()
        && node["spec"].get("unschedulable").is_none()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_next_waits_until_one_has_stopped() {
        let mut permits: Vec<_> = (0..AT_ONCE).map(|_| permit().expect("a permit")).collect();
        let (acquired, waits) = mpsc::channel();
        let waiter = thread::spawn(move || acquired.send(permit()));
        assert!(waits.recv_timeout(Duration::from_millis(100)).is_err(), "the limit is reached");
        permits.pop();
        waits.recv_timeout(Duration::from_secs(10)).expect("the waiter continues").expect("a permit");
        waiter.join().expect("it ends").expect("the channel is open");
    }

    #[test]
    fn what_kubernetes_makes_is_not_of_a_test() {
        for object in
            ["namespace/kube-system", "namespace/default", "clusterrole.rbac.authorization.k8s.io/system:node", "view"]
        {
            assert!(is_built_in(object), "{object}");
        }
        assert!(
            !is_built_in("namespace/redislease-system")
                && !is_built_in("clusterrole.rbac.authorization.k8s.io/redislease-view")
        );
    }
}
