//! Which namespaces are watched.

use kube::core::NamespaceResourceScope;
use kube::{Api, Client};

/// The capacity of the channel of a watch with few events.
pub(super) const AHEAD: usize = 64;

/// The namespaces of leases, pods and workloads.
pub(super) struct Namespaces {
    pub client: Client,
    pub chosen: Vec<String>,
}

impl Namespaces {
    /// One API for each watched namespace, or one API for all namespaces if none is configured.
    pub fn apis<K>(&self) -> Vec<Api<K>>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        match self.chosen.as_slice() {
            [] => vec![Api::all(self.client.clone())],
            chosen => chosen.iter().map(|namespace| Api::namespaced(self.client.clone(), namespace)).collect(),
        }
    }
}
