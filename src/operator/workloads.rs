//! From a workload to the selector of its pods.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use kube::{Api, Client};
use redislease_core::time::{Millis, Time};

use super::kube_api::{CallError, call};
use crate::api::validated::{Workload, WorkloadKind};

/// How long a selector is used before it is asked for again. It never changes in a workload, but the workload may be
/// deleted and created again.
const FRESH: Millis = Millis::from_secs(30);

/// How long the last selector is used before it is asked for again, when the API server did not say.
const UNREAD: Millis = Millis::from_secs(5);

/// Selectors by namespace and workload, with the time from which on each is asked for again.
type Cache = BTreeMap<(String, Workload), (Time, Selector)>;

/// The selectors of the workloads that leases name.
pub struct Workloads {
    client: Client,
    cache: Mutex<Cache>,
}

/// Why a workload's pods are not known.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// It does not exist.
    #[error(
        "spec.candidates.workloadRef names {kind} {namespace}/{name}, which does not exist: create it or correct the reference"
    )]
    Missing {
        /// Its kind.
        kind: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// It has no selector that selects something.
    #[error("{kind} {namespace}/{name}, which spec.candidates.workloadRef names, has no selector over pods")]
    NoSelector {
        /// Its kind.
        kind: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The API server did not say.
    #[error("{kind} {namespace}/{name} could not be read: {source}")]
    Unread {
        /// Its kind.
        kind: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Why.
        source: CallError,
    },
}

impl Workloads {
    /// Reads through `client`.
    pub const fn new(client: Client) -> Self {
        Self { client, cache: Mutex::new(BTreeMap::new()) }
    }

    /// The selector of a workload. While the API server does not answer, the last one is used.
    ///
    /// # Errors
    /// [`WorkloadError`].
    pub async fn selector(&self, namespace: &str, workload: &Workload, now: Time) -> Result<Selector, WorkloadError> {
        let key = (namespace.to_owned(), workload.clone());
        let known = self.cache().get(&key).cloned();
        if let Some((due, selector)) = &known
            && now < *due
        {
            return Ok(selector.clone());
        }
        let (kind, name) = (workload.kind.as_str(), workload.name.clone());
        let namespace = namespace.to_owned();
        match self.read(&namespace, workload).await {
            Ok(labels) => {
                let selector = labels.and_then(|labels| Selector::try_from(labels).ok());
                let Some(selector) = selector.filter(|selector| !selector.selects_all()) else {
                    self.cache().remove(&key);
                    return Err(WorkloadError::NoSelector { kind, namespace, name });
                };
                self.cache().insert(key, (now + FRESH, selector.clone()));
                Ok(selector)
            }
            Err(CallError::NotFound) => {
                self.cache().remove(&key);
                Err(WorkloadError::Missing { kind, namespace, name })
            }
            Err(source) => match known {
                Some((_, selector)) => {
                    self.cache().insert(key, (now + UNREAD, selector.clone()));
                    Ok(selector)
                }
                None => Err(WorkloadError::Unread { kind, namespace, name, source }),
            },
        }
    }

    /// From when on the selector of a workload is to be asked for again; `None` while none is known.
    pub fn due(&self, namespace: &str, workload: &Workload) -> Option<Time> {
        self.cache().get(&(namespace.to_owned(), workload.clone())).map(|(due, _)| *due)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read(&self, namespace: &str, workload: &Workload) -> Result<Option<LabelSelector>, CallError> {
        let client = self.client.clone();
        let name = workload.name.as_str();
        macro_rules! selector_of {
            ($kind:ty) => {{
                let object = call(Api::<$kind>::namespaced(client, namespace).get(name)).await?;
                object.spec.map(|spec| spec.selector)
            }};
        }
        Ok(match workload.kind {
            WorkloadKind::Deployment => selector_of!(Deployment),
            WorkloadKind::StatefulSet => selector_of!(StatefulSet),
            WorkloadKind::DaemonSet => selector_of!(DaemonSet),
            WorkloadKind::ReplicaSet => selector_of!(ReplicaSet),
            WorkloadKind::Job => selector_of!(Job).flatten(),
        })
    }
}
