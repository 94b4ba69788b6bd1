//! The operator (being rewritten).
#![allow(dead_code, unused_imports)]
mod fair_queue;
mod index;
pub mod kube_api;
mod writer;
use std::net::SocketAddr;
use tokio_util::sync::CancellationToken;
/// What the operator is told at its start.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of this cluster, the same for every operator in it and for no other cluster on its quorums.
    pub cluster: String,
    /// Where RedisQuorums and their secrets are honoured.
    pub namespace: String,
    /// Where metrics and health are served.
    pub listen: SocketAddr,
    /// Under which name events are reported.
    pub instance: String,
}
/// Runs.
///
/// # Errors
/// Always.
pub async fn run(_options: Options, _stop: CancellationToken) -> Result<(), String> {
    Err("later".into())
}
