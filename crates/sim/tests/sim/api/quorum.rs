//! The RedisQuorum as the API server of one cluster shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use redislease_core::time::Millis;
use redislease_plan::api::RedisQuorumSpec;
use redislease_plan::plan::OpenQuorum;

use crate::chaos::fault::Fault;

/// The longest command timeout that admission accepts. The renewals of no lease of the swarm are seldom enough for it.
const LONG: Millis = Millis(5000);

/// The quorum as the API server of one cluster shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct QuorumResource {
    pub spec: RedisQuorumSpec,
    /// What the leases and the election know of its connections.
    pub open: Arc<OpenQuorum>,
    pub no_secret: bool,
}

impl QuorumResource {
    /// Begins or ends the fault. Returns whether this changes anything.
    pub fn edit(&mut self, fault: Fault, timeout: Millis, is_harmed: bool) -> bool {
        let before = self.clone();
        match fault {
            Fault::NoSecret => self.no_secret = is_harmed,
            // No namespace of a lease has a label.
            Fault::NotAllowed => {
                let labels = BTreeMap::from([("tenant".to_owned(), "none".to_owned())]);
                let none = LabelSelector { match_labels: Some(labels), match_expressions: None };
                self.spec.allowed_namespaces = is_harmed.then_some(none);
            }
            // The connections keep the timeout of the swarm: the bounds of the checker are those of its requests.
            _ => {
                let command_timeout = if is_harmed { LONG } else { timeout };
                self.spec.command_timeout = core::time::Duration::from(command_timeout).into();
                self.open = Arc::new(OpenQuorum { command_timeout, ..OpenQuorum::clone(&self.open) });
            }
        }
        *self != before
    }
}
