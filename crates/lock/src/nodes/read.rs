//! Reads the key of a lease, for people and monitoring.

use std::time::Duration;

use tokio::sync::oneshot;

use super::Nodes;
use super::message::{Message, Reading, Shown};

impl Nodes {
    /// Reads the key of a lease on all nodes, for at most one command timeout. The result has one entry for each node that votes and
    /// answers. It may be old when it arrives, and is no vote.
    pub async fn read(&self, key: &str) -> Vec<Shown> {
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
        let timeout: Duration = self.command_timeout().into();
        // The caller may have no runtime. A timer of tokio needs no file descriptor, and no validity depends on this one.
        self.spawn(async move {
            let mut answers = Vec::new();
            let deadline = tokio::time::Instant::now() + timeout;
            for answered in asked {
                answers.extend(tokio::time::timeout_at(deadline, answered).await.ok().and_then(Result::ok));
            }
            let _ = done.send(answers);
        });
        found.await.unwrap_or_default()
    }
}
