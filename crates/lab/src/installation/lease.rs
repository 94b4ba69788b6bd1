//! A RedisLease as read from the API server.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde_json::{Value, json};

use super::installed::Installation;
use super::options::overlay;
use crate::{Condition, Error, Result};

/// A RedisLease, by its namespace and name.
#[derive(Debug, Clone)]
pub struct Lease<'a> {
    installation: &'a Installation,
    namespace: String,
    name: String,
}

/// The role label and the token annotation of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Role {
    /// The value of the label `lease.redislease.io/<lease>`: `active` or `standby`.
    pub label: Option<String>,
    /// The value of the annotation `token.redislease.io/<lease>`.
    pub token: Option<String>,
}

impl Installation {
    /// Applies a RedisLease and its namespace. The fields of `spec` replace the defaults of the lab: the candidates are the
    /// pods of the Deployment with the same name, leaseDuration 10s, renewInterval 2s, gracePeriod 3s. A null removes a
    /// default.
    ///
    /// # Errors
    /// [`Error::Command`] with the message of the rule that refuses it.
    pub fn lease(&self, in_namespace: &str, name: &str, spec: &Value) -> Result<Lease<'_>> {
        self.namespace(in_namespace)?;
        let mut whole = json!({
            "candidates": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
            "leaseDuration": "10s",
            "renewInterval": "2s",
            "gracePeriod": "3s",
        });
        overlay(&mut whole, spec);
        self.apply(&json!({
            "apiVersion": "redislease.io/v1alpha1",
            "kind": "RedisLease",
            "metadata": {"name": name, "namespace": in_namespace},
            "spec": whole,
        }))?;
        Ok(self.find_lease(in_namespace, name))
    }

    /// A RedisLease that exists already.
    pub fn find_lease(&self, namespace: &str, name: &str) -> Lease<'_> {
        Lease { installation: self, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl Lease<'_> {
    /// Reads the object.
    ///
    /// # Errors
    /// [`Error::Answer`] when it does not exist or the API server does not answer.
    pub fn state(&self) -> Result<LeaseState> {
        let path = format!("/apis/redislease.io/v1alpha1/namespaces/{}/redisleases/{}", self.namespace, self.name);
        let found = self.installation.control_plane().get(&path)?;
        found.map(LeaseState).ok_or(Error::Answer { url: path, message: "the object does not exist".to_owned() })
    }

    /// Polls until `wanted` accepts the object, and returns it.
    ///
    /// # Errors
    /// [`Error::NotInTime`] with the last status and the last lines of every operator's log.
    pub fn wait(
        &self,
        what: &str,
        within: Duration,
        mut wanted: impl FnMut(&LeaseState) -> bool,
    ) -> Result<LeaseState> {
        self.installation.wait_for(&format!("{}/{}: {what}", self.namespace, self.name), within, || {
            let state = self.state()?;
            if wanted(&state) { Ok(state) } else { Err(state.to_string()) }
        })
    }

    /// The label and annotation of this lease on the pods of its namespace, by pod name. Pods with neither are left out.
    ///
    /// # Errors
    /// [`Error::Answer`] when the API server does not answer.
    pub fn roles(&self) -> Result<BTreeMap<String, Role>> {
        let path = format!("/api/v1/namespaces/{}/pods", self.namespace);
        let pods = self.installation.control_plane().get(&path)?.unwrap_or_default();
        let role = |pod: &Value| {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let metadata = &pod["metadata"];
            let role = Role {
                label: text(&metadata["labels"][format!("lease.redislease.io/{}", self.name)]),
                token: text(&metadata["annotations"][format!("token.redislease.io/{}", self.name)]),
            };
            (role != Role::default()).then(|| (text(&metadata["name"]).unwrap_or_default(), role))
        };
        Ok(pods["items"].as_array().into_iter().flatten().filter_map(role).collect())
    }

    /// Waits until the pods match `state`: at least `pods` of them have the label and the token of this term, and only
    /// the holder is labelled `active`.
    ///
    /// # Errors
    /// [`Error::NotInTime`] with the labels and tokens last seen.
    pub fn wait_for_roles(&self, state: &LeaseState, pods: usize, within: Duration) -> Result<()> {
        let token = state.token().map(|token| token.to_string());
        let what = format!("{}/{}: only the holder is active, all pods have the token", self.namespace, self.name);
        self.installation.wait_for(&what, within, || {
            let roles = self.roles()?;
            let is_right = |(pod, role): (&String, &Role)| {
                let label = if Some(pod.as_str()) == state.holder() { "active" } else { "standby" };
                role.label.as_deref() == Some(label) && role.token == token
            };
            let is_named = state.holder().is_some_and(|holder| roles.contains_key(holder));
            let all = is_named && roles.len() >= pods && roles.iter().all(is_right);
            if all { Ok(()) } else { Err(format!("{roles:?}")) }
        })
    }

    /// The labels of its series in /metrics.
    pub fn labels(&self) -> [(&str, &str); 2] {
        [("lease_namespace", &self.namespace), ("lease", &self.name)]
    }

    /// Changes it with a merge patch.
    ///
    /// # Errors
    /// [`Error::Command`] with the API server's refusal.
    pub fn patch(&self, patch: &Value) -> Result<()> {
        let patch = patch.to_string();
        self.kubectl(&["patch", "redislease", &self.name, "--type=merge", "--patch", &patch])
    }

    /// Deletes it and waits until the API server has removed it.
    ///
    /// # Errors
    /// [`Error::Command`] with the API server's refusal.
    pub fn delete(&self) -> Result<()> {
        self.kubectl(&["delete", "redislease", &self.name])
    }

    fn kubectl(&self, args: &[&str]) -> Result<()> {
        self.installation.control_plane().kubectl(&[args, &["--namespace", &self.namespace]].concat()).map(drop)
    }
}

/// A RedisLease as it was when it was read.
#[derive(Debug, Clone)]
pub struct LeaseState(Value);

impl LeaseState {
    /// The object in JSON.
    pub fn json(&self) -> &Value {
        &self.0
    }

    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<Condition> {
        Condition::of(&self.0, kind)
    }

    /// The reason of the condition of this type; empty when there is no such condition.
    pub fn reason(&self, kind: &str) -> String {
        self.condition(kind).map(|condition| condition.reason).unwrap_or_default()
    }

    /// The message of the condition of this type; empty when there is no such condition.
    pub fn message(&self, kind: &str) -> String {
        self.condition(kind).map(|condition| condition.message).unwrap_or_default()
    }

    /// Whether the condition Active is True.
    pub fn is_active(&self) -> bool {
        Condition::is_true(&self.0, "Active")
    }

    /// The pod that holds the lease.
    pub fn holder(&self) -> Option<&str> {
        self.0["status"]["holder"]["pod"].as_str()
    }

    /// The attempt that identifies the term.
    pub fn attempt(&self) -> Option<&str> {
        self.0["status"]["attempt"].as_str()
    }

    /// The fencing token of the latest term.
    pub fn token(&self) -> Option<u64> {
        self.0["status"]["fencingToken"].as_u64()
    }

    /// The number of changes of the holder.
    pub fn transitions(&self) -> u64 {
        self.0["status"]["transitions"].as_u64().unwrap_or_default()
    }

    /// Whether the lease is held in the same term as it was in `before`.
    pub fn continues(&self, before: &Self) -> bool {
        let term = |of: &Self| (of.attempt().map(str::to_owned), of.token(), of.transitions());
        self.is_active() && self.holder() == before.holder() && term(self) == term(before)
    }

    /// The resource version. Every write changes it.
    pub fn resource_version(&self) -> &str {
        self.0["metadata"]["resourceVersion"].as_str().unwrap_or_default()
    }

    /// The UID.
    pub fn uid(&self) -> &str {
        self.0["metadata"]["uid"].as_str().unwrap_or_default()
    }
}

impl fmt::Display for LeaseState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |text: Option<&str>| text.unwrap_or("-").to_owned();
        write!(
            f,
            "holder {}, token {}, attempt {}, transitions {}, {}, {}",
            or_none(self.holder()),
            self.token().map_or_else(|| "-".to_owned(), |token| token.to_string()),
            or_none(self.attempt()),
            self.transitions(),
            Condition::brief(&self.0, "Active"),
            Condition::brief(&self.0, "Ready"),
        )
    }
}
