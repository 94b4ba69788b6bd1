//! Disconnects one operator from the Redis servers, from the API server, or from both, while the others stay connected.

use std::{net::SocketAddr, sync::Arc};

use super::{Installation, Operator};
use crate::{Cut, Error, Proxy, RedisServer, Result};

/// A proxy for each server that operators connect to.
#[derive(Debug)]
pub(super) struct Network {
    api_server: Proxy,
    redis: Vec<Proxy>,
}

/// The servers that an operator is disconnected from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// All Redis servers.
    Redis,
    /// The API server.
    ApiServer,
}

impl Network {
    pub(super) fn before(api_server: SocketAddr, redis: &[Arc<RedisServer>]) -> Result<Self> {
        let redis = redis.iter().map(|server| Proxy::to(server.address())).collect::<Result<_>>()?;
        Ok(Self { api_server: Proxy::to(api_server)?, redis })
    }

    /// The addresses that operators use for the Redis servers, in order.
    pub(super) fn redis(&self) -> impl Iterator<Item = SocketAddr> {
        self.redis.iter().map(Proxy::address)
    }

    /// The address that operators use for the API server.
    pub(super) fn api_server(&self) -> SocketAddr {
        self.api_server.address()
    }

    fn all(&self) -> impl Iterator<Item = &Proxy> {
        self.redis.iter().chain([&self.api_server])
    }

    fn of(&self, peer: Peer) -> &[Proxy] {
        match peer {
            Peer::Redis => &self.redis,
            Peer::ApiServer => std::slice::from_ref(&self.api_server),
        }
    }
}

impl Installation {
    /// Cuts the connections of one operator process to these servers, until [`reconnect`](Self::reconnect). A process
    /// that is started later is not disconnected, even with the same name.
    ///
    /// # Errors
    /// [`Error::NoProxies`] without [`InstallationOptions::proxied`](super::InstallationOptions::proxied),
    /// [`Error::NotRunning`] when the operator does not run.
    pub fn cut_off(&self, operator: &Operator, from: &[Peer], how: Cut) -> Result<()> {
        let network = self.network.as_ref().ok_or(Error::NoProxies)?;
        let pid = operator.process().pid().ok_or_else(|| Error::NotRunning { process: "operator".to_owned() })?;
        for proxy in from.iter().flat_map(|peer| network.of(*peer)) {
            proxy.cut_process(pid, how);
        }
        Ok(())
    }

    /// Ends every [`cut_off`](Self::cut_off).
    pub fn reconnect(&self) {
        self.network.iter().flat_map(Network::all).for_each(Proxy::restore);
    }
}
