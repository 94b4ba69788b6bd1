//! Events on leases, quorums and pods.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::mpsc;

use super::kube_api::{self, CallError, call};
use crate::metrics::operator::{OperatorMetrics, WriteKind};
use crate::status::Notice;

/// Longest note the API server takes, in bytes.
const NOTE: usize = 1024;

/// Who reports. Events are sent one after the other, behind the back of whoever reports: nobody waits for them.
#[derive(Clone)]
pub struct Reporter {
    queue: mpsc::UnboundedSender<(Notice, ObjectReference)>,
}

impl Reporter {
    /// Reports as `instance`, the pod or host this process runs on. Needs a running tokio runtime.
    pub fn start(client: Client, instance: String, writes: OperatorMetrics) -> Self {
        let (queue, mut notices) = mpsc::unbounded_channel();
        let sender = Sender { client, instance, writes };
        tokio::spawn(async move {
            while let Some((notice, object)) = notices.recv().await {
                sender.report(&notice, object).await;
            }
        });
        Self { queue }
    }

    /// Sends the event on `object`, and on each pod it names.
    pub fn report(&self, notice: Notice, object: ObjectReference) {
        // The sender lives as long as the runtime.
        let _ = self.queue.send((notice, object));
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
        let name = format!("{}.{:x}", regarding.name.as_deref().unwrap_or("redislease"), now.as_nanosecond());
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
