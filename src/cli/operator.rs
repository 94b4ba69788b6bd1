//! `redislease operator`: runs the operator.

use std::error::Error;
use std::net::SocketAddr;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli::values;
use crate::operator::{self, Options};
use crate::telemetry::LogOptions;

/// Runs the operator: keeps the leases of this cluster, elects their holders, writes status, labels and events.
///
/// Terms outlive the process: a stopped operator releases nothing, and the next one goes on with the same tokens.
#[derive(Debug, Args)]
pub struct Operator {
    /// The name of this cluster: the same for every operator in it, and for no other cluster that shares a quorum.
    #[arg(long, env = "REDISLEASE_CLUSTER_NAME", default_value = "", value_name = "NAME", value_parser = values::cluster_name)]
    cluster_name: String,

    /// The operator's own namespace: RedisQuorums and their secrets are honoured here and nowhere else.
    #[arg(long, env = "REDISLEASE_NAMESPACE", default_value = "redislease-system", value_name = "NAMESPACE", value_parser = values::namespace)]
    namespace: String,

    /// Where /metrics, /healthz and /readyz are served.
    #[arg(long, env = "REDISLEASE_LISTEN", default_value = "0.0.0.0:8080", value_name = "ADDRESS", value_parser = values::address)]
    listen: SocketAddr,

    /// The name events are reported under: the operator's pod.
    #[arg(long, env = "REDISLEASE_INSTANCE", default_value = "redislease-operator", value_name = "NAME", value_parser = values::instance)]
    instance: String,

    #[command(flatten)]
    log: LogOptions,
}

impl Operator {
    /// Runs until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// One sentence when the operator cannot start.
    pub fn run(self) -> Result<(), Box<dyn Error>> {
        self.log.start()?;
        // A task that is gone would leave a lease that nobody renews in a process that looks well.
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            report(panic);
            std::process::exit(70);
        }));
        // Two crates bring a provider each; whoever asks first would otherwise decide.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let options = Options {
            cluster: self.cluster_name,
            namespace: self.namespace,
            listen: self.listen,
            instance: self.instance,
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
