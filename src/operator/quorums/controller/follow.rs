//! Follows the nodes of a connection: their status, and their requests to list the tokens of all leases.

use std::sync::{Arc, Weak};

use redislease_plan::plan::calls::{Outcome, Request};

use super::{Connection, Controller, Event};

impl Controller {
    /// Follows the status and the requests of a connection's nodes until it is closed.
    pub(super) fn follow(&self, name: &str, connection: &Arc<Connection>) {
        let (mut watch, mut requests) = (connection.nodes.watch(), connection.nodes.floor_requests());
        let (events, quorum, connection) = (self.events.clone(), name.to_owned(), Arc::downgrade(connection));
        tokio::spawn(async move {
            loop {
                let (changed, event) = tokio::select! {
                    changed = watch.changed() => (changed, Event::Moved(quorum.clone())),
                    changed = requests.changed() => {
                        let (quorum, connection) = (quorum.clone(), connection.clone());
                        let request = *requests.borrow_and_update();
                        (changed, Event::FloorWanted { quorum, connection, request })
                    }
                };
                if changed.is_err() || events.send(event).is_err() {
                    return;
                }
            }
        });
    }

    /// Lists the tokens of all leases on a quorum whose nodes have lost their data.
    pub(super) fn read_floor(&self, quorum: &str, connection: Weak<Connection>, request: u64) {
        let (name, namespaces) = (quorum.to_owned(), self.parts.lease_namespaces.clone());
        let done = move |outcome| {
            let (Outcome::Tokens(read), Some(connection)) = (outcome, connection.upgrade()) else { return };
            match read {
                Ok(token) => {
                    connection.nodes.raise_floor(token);
                    connection.nodes.floor_read(request);
                }
                // The nodes request it again after a while.
                Err(error) => {
                    tracing::warn!(
                        quorum = name,
                        error,
                        "The tokens of the leases cannot be listed. Until the list succeeds, nodes that lost their data do not vote. This is tried again."
                    );
                }
            }
        };
        let request = Request::Tokens { of: quorum.into(), quorum: quorum.to_owned(), namespaces };
        self.parts.writer.submit(request, Box::new(done));
    }
}
