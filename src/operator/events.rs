//! Events on leases, quorums and pods.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::{mpsc, oneshot};

use super::kube_api::{self, CallError, call};
use crate::metrics::operator::{OperatorMetrics, WriteKind};
use crate::status::Notice;

/// Longest note the API server takes, in bytes.
const NOTE: usize = 1024;

/// Longest name the API server takes, in bytes.
const NAME: usize = 253;

/// How long the end of the process waits for events.
const FLUSH: Duration = Duration::from_secs(3);

/// Who reports. Events are sent one after the other, behind the back of whoever reports: nobody waits for them.
#[derive(Clone)]
pub struct Reporter {
    queue: mpsc::UnboundedSender<Queued>,
}

enum Queued {
    Event(Notice, Box<ObjectReference>),
    /// Told when everything before it was sent.
    Mark(oneshot::Sender<()>),
}

impl Reporter {
    /// Reports as `instance`, the pod or host this process runs on. Needs a running tokio runtime.
    pub fn start(client: Client, instance: String, writes: OperatorMetrics) -> Self {
        let (queue, mut notices) = mpsc::unbounded_channel();
        let sender = Sender { client, instance, writes };
        tokio::spawn(async move {
            while let Some(next) = notices.recv().await {
                match next {
                    Queued::Event(notice, object) => sender.report(&notice, *object).await,
                    Queued::Mark(reached) => {
                        let _ = reached.send(());
                    }
                }
            }
        });
        Self { queue }
    }

    /// Sends the event on `object`, and on each pod it names.
    pub fn report(&self, notice: Notice, object: ObjectReference) {
        // The sender lives as long as the runtime.
        let _ = self.queue.send(Queued::Event(notice, Box::new(object)));
    }

    /// Waits until what was reported so far is sent, but not for long.
    pub async fn flush(&self) {
        let (mark, reached) = oneshot::channel();
        let _ = self.queue.send(Queued::Mark(mark));
        if tokio::time::timeout(FLUSH, reached).await.is_err() {
            tracing::warn!("events are left unsent: the API server did not take them in {} s", FLUSH.as_secs());
        }
    }
}

struct Sender {
    client: Client,
    instance: String,
    writes: OperatorMetrics,
}

impl Sender {
    /// An event that cannot be sent is logged: what happened is in the status too.
    async fn report(&self, notice: &Notice, object: ObjectReference) {
        let pods = notice.on_pods.iter().map(|(name, uid)| ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: Some(name.clone()),
            namespace: object.namespace.clone(),
            uid: Some(uid.clone()),
            ..ObjectReference::default()
        });
        for regarding in std::iter::once(object.clone()).chain(pods) {
            let written = self.send(notice, regarding.clone()).await;
            self.writes.wrote(WriteKind::Event, kube_api::result(&written));
            if let Err(error) = written {
                let name = regarding.name.unwrap_or_default();
                tracing::warn!(%name, reason = notice.reason.as_str(), %error, "event not sent: {}", notice.note);
            }
        }
    }

    async fn send(&self, notice: &Notice, regarding: ObjectReference) -> Result<(), CallError> {
        let now = jiff::Timestamp::now();
        let namespace = regarding.namespace.clone().unwrap_or_else(|| "default".into());
        let name = event_name(regarding.name.as_deref().unwrap_or("redislease"), now);
        let mut note = notice.note.clone();
        note.truncate(note.floor_char_boundary(NOTE));
        let event = Event {
            metadata: ObjectMeta { name: Some(name), namespace: Some(namespace.clone()), ..ObjectMeta::default() },
            action: Some(notice.reason.as_str().into()),
            reason: Some(notice.reason.as_str().into()),
            note: Some(note),
            type_: Some(notice.reason.importance().as_str().into()),
            event_time: Some(MicroTime(now)),
            regarding: Some(regarding),
            reporting_controller: Some("redislease.io/operator".into()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        };
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        call(events.create(&PostParams::default(), &event)).await.map(drop)
    }
}

/// The name of an event on an object: as much of the object's as fits, and the time.
fn event_name(object: &str, now: jiff::Timestamp) -> String {
    let time = format!(".{:x}", now.as_nanosecond());
    let fits = object.floor_char_boundary(NAME - time.len());
    // No part of a name ends with a hyphen, or is empty.
    object[..fits].trim_end_matches(['-', '.']).to_owned() + &time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_event_fits() {
        let now = jiff::Timestamp::from_second(1_795_262_400).unwrap();
        let time = ".18ea0da41e9d8000";
        assert_eq!(event_name("billing-0", now), format!("billing-0{time}"));
        let long = event_name(&"a".repeat(253), now);
        assert_eq!(long, format!("{}{time}", "a".repeat(253 - time.len())));
        let cut = "a".repeat(253 - time.len() - 2);
        assert_eq!(event_name(&format!("{cut}.-bcd"), now), format!("{cut}{time}"));
    }
}
