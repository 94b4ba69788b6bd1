//! The API server through kube-rs: a client, and watches that do not end.

use std::{fmt::Debug, path::Path, time::Duration};

use futures::StreamExt as _;
use kube::{
    Api, Client, Config, Resource,
    config::{KubeConfigOptions, Kubeconfig},
    runtime::watcher::{self, Event, watcher},
};
use serde::de::DeserializeOwned;

use crate::{Error, Result};

/// The pause before a broken watch is restarted.
const RESTART_AFTER: Duration = Duration::from_millis(200);

/// Creates a client from a kubeconfig. It repeats no call by itself.
pub(crate) async fn connect(kubeconfig: &Path) -> Result<Client> {
    let failed = |error: &dyn ToString| Error::Call {
        doing: "connect to the API server".to_owned(),
        message: error.to_string(),
    };
    let kubeconfig = Kubeconfig::read_from(kubeconfig).map_err(|error| failed(&error))?;
    let context = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &context).await.map_err(|error| failed(&error))?;
    config.default_retry = false;
    Client::try_from(config).map_err(|error| failed(&error))
}

/// Watches objects and passes each of them on, at first and after each change, with whether it still exists. After an
/// error, which it passes to `broken`, it lists all objects again: the data of the API server may be from a backup.
pub(crate) async fn follow<K>(
    objects: Api<K>,
    config: watcher::Config,
    mut seen: impl FnMut(&K, bool),
    broken: impl Fn(&watcher::Error),
) where
    K: Resource<DynamicType: Clone> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    loop {
        let mut events = std::pin::pin!(watcher(objects.clone(), config.clone()));
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(object) | Event::InitApply(object)) => seen(&object, true),
                Ok(Event::Delete(object)) => seen(&object, false),
                Ok(Event::Init | Event::InitDone) => {}
                Err(error) => {
                    broken(&error);
                    tokio::time::sleep(RESTART_AFTER).await;
                    break;
                }
            }
        }
    }
}
