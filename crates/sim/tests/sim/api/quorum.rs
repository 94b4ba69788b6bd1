//! The RedisQuorum as the API server of one cluster shows it.

use core::time::Duration;
use std::sync::Arc;

use redislease_plan::api::ValidQuorum;
use redislease_plan::plan::OpenQuorum;

use crate::chaos::fault::Fault;

/// The longest command timeout that admission accepts. The renewals of no lease of the swarm are seldom enough for it.
const LONG: Duration = Duration::from_secs(5);

/// The quorum as the API server of one cluster shows it.
#[derive(Clone, Debug)]
pub struct QuorumResource {
    pub no_secret: bool,
    /// It does not allow the namespaces of the leases.
    pub denied: bool,
    long_timeout: bool,
    first: Specs,
    with_long_timeout: Specs,
}

/// The spec, and what the leases and the election know of its connections.
type Specs = (Arc<ValidQuorum>, Arc<OpenQuorum>);

impl QuorumResource {
    pub fn new(valid: ValidQuorum, open: OpenQuorum) -> Self {
        let with_long_timeout = (
            Arc::new(ValidQuorum { command_timeout: LONG, ..valid.clone() }),
            Arc::new(OpenQuorum { command_timeout: LONG.into(), ..open.clone() }),
        );
        let first = (Arc::new(valid), Arc::new(open));
        Self { no_secret: false, denied: false, long_timeout: false, first, with_long_timeout }
    }

    /// The connections keep the timeout of the swarm: the bounds of the checker are those of its requests.
    pub fn specs(&self) -> Specs {
        if self.long_timeout { self.with_long_timeout.clone() } else { self.first.clone() }
    }

    pub fn state_of(&mut self, fault: Fault) -> &mut bool {
        match fault {
            Fault::NoSecret => &mut self.no_secret,
            Fault::NotAllowed => &mut self.denied,
            _ => &mut self.long_timeout,
        }
    }
}
