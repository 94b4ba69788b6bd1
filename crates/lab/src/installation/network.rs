//! The proxies between operators and their servers.

use std::{net::SocketAddr, sync::Arc};

use crate::{Proxy, RedisServer, Result};

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

    pub(super) fn all(&self) -> impl Iterator<Item = &Proxy> {
        self.redis.iter().chain([&self.api_server])
    }

    pub(super) fn of(&self, peer: Peer) -> &[Proxy] {
        match peer {
            Peer::Redis => &self.redis,
            Peer::ApiServer => std::slice::from_ref(&self.api_server),
        }
    }
}
