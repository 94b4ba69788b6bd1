//! Reads the key of a lease, for people and monitoring.

use tokio::sync::oneshot;

use super::Nodes;
use super::link::Reading;
use super::node::Message;
use super::script::Found;
use crate::clock;

impl Nodes {
    /// Reads the key of a lease on all nodes, for at most one command timeout. The result has one entry for each node that votes and
    /// answers: its value and life, or `None` if the node has no such key. It may be old when it arrives, and is no vote.
    pub async fn read(&self, key: &str) -> Vec<Found> {
        let asked: Vec<_> = self
            .shared
            .ports
            .iter()
            .map(|port| {
                let (answer, answered) = oneshot::channel();
                // A message that cannot be delivered is dropped, which counts as no answer.
                let _ = port.inbox.send(Message::Read(Reading { key: key.to_owned(), answer }));
                answered
            })
            .collect();
        let (done, found) = oneshot::channel();
        let deadline = clock::now() + self.command_timeout();
        // The caller may have no runtime.
        self.spawn(async move {
            let mut answers = Vec::new();
            for answered in asked {
                let left = deadline.since(clock::now());
                answers.extend(clock::within(left, answered).await.ok().and_then(Result::ok));
            }
            let _ = done.send(answers);
        });
        found.await.unwrap_or_default()
    }
}
