//! `redislease operator`: runs the operator.

use std::error::Error;
use std::net::SocketAddr;

use clap::{ArgAction, Args};
use redislease_lock::contain::is_contained;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli::activations::Activations;
use crate::cli::values;
use crate::operator::{self, Options};
use crate::telemetry::LogOptions;

/// The exit code after a panic: `EX_SOFTWARE` of sysexits.h.
const PANICKED: i32 = 70;

/// Run the operator: it elects holders, renews the leases of this cluster, and writes status, pod labels and events.
///
/// A stopped operator releases no lease. If an operator starts again before the leases expire, it continues them with the same
/// holders and fencing tokens.
#[derive(Debug, Args)]
pub(super) struct Operator {
    /// The name of this cluster, shown with each holder. Each cluster on a quorum needs its own name. At most 63 letters, digits,
    /// '-', '.' and '_'
    #[arg(long, env = "REDISLEASE_CLUSTER_NAME", default_value = "", value_name = "NAME", value_parser = values::cluster_name)]
    cluster_name: String,

    /// The operator's namespace. The operator uses RedisQuorums and their Secrets in this namespace only
    #[arg(long, env = "REDISLEASE_NAMESPACE", default_value = "redislease-system", value_name = "NAMESPACE", value_parser = values::namespace)]
    namespace: String,

    /// The namespaces of leases and pods, separated by commas. The operator ignores all other namespaces. Default: all namespaces
    #[arg(long, env = "REDISLEASE_WATCH_NAMESPACES", value_name = "NAMESPACES", value_delimiter = ',', value_parser = values::namespace)]
    watch_namespaces: Vec<String>,

    /// Whether workloads with the annotation redislease.io/lease get a RedisLease. If false, the operator needs no rights to list
    /// workloads and to write leases
    #[arg(long, env = "REDISLEASE_ANNOTATIONS", default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    annotations: bool,

    #[command(flatten)]
    activations: Activations,

    /// The IP address and port for /metrics, /healthz and /readyz
    #[arg(long, env = "REDISLEASE_LISTEN", default_value = "0.0.0.0:8080", value_name = "ADDRESS", value_parser = values::address)]
    listen: SocketAddr,

    /// The name of this replica, in Kubernetes Events and in the status of a RedisQuorum that it leads. Each replica needs its
    /// own name, usually the name of its pod. Default: the name of the host, which in a pod is the name of the pod
    #[arg(long, env = "REDISLEASE_INSTANCE", value_name = "NAME", value_parser = values::instance)]
    instance: Option<String>,

    #[command(flatten)]
    log: LogOptions,
}

impl Operator {
    /// Runs until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// Why the operator could not start.
    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        self.log.start()?;
        exit_after_panics();
        // rustls needs an explicit choice because dependencies enable more than one provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let options = Options {
            cluster: self.cluster_name,
            namespace: self.namespace,
            watch_namespaces: distinct(self.watch_namespaces),
            annotations: self.annotations,
            allowed: self.activations.into(),
            listen: self.listen,
            instance: self.instance.unwrap_or_else(host_name),
        };
        runtime.block_on(async {
            let stop = CancellationToken::new();
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            let stopped = stop.clone();
            tokio::spawn(async move {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                stopped.cancel();
            });
            operator::run(options, stop).await.map_err(Into::into)
        })
    }
}

/// Ends the process after each panic that is not contained: it would look healthy although it no longer renews all leases. A
/// panic that is contained to one lease is counted, and the process continues.
fn exit_after_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        if !is_contained() {
            std::process::exit(PANICKED);
        }
    }));
}

/// A namespace that is named twice is watched once.
fn distinct(mut namespaces: Vec<String>) -> Vec<String> {
    namespaces.sort_unstable();
    namespaces.dedup();
    namespaces
}

/// The name of this host.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use redislease_lock::contain::contained;

    use super::*;

    const CHILD: &str = "cli::operator::tests::a_process_in_which_two_tasks_panic";

    #[test]
    #[ignore = "the process that the next test starts"]
    fn a_process_in_which_two_tasks_panic() {
        exit_after_panics();
        assert!(contained(|| panic!("in one lease")).is_err());
        println!("continues");
        let _ = std::thread::spawn(|| panic!("in a task of all leases"));
        std::thread::sleep(Duration::from_mins(1));
    }

    #[test]
    fn only_a_panic_that_is_not_contained_ends_the_process() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let ended = child.args(["--exact", CHILD, "--ignored", "--nocapture"]).output().unwrap();
        let (said, log) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert_eq!(ended.status.code(), Some(PANICKED), "{said}{log}");
        assert!(said.contains("continues"), "{said}");
        assert!(log.contains("in one lease") && log.contains("in a task of all leases"), "{log}");
    }
}
