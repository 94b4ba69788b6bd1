//! An API server, as far as leases are concerned, and the controller's state.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::annotations::decide::is_unwanted;
use crate::annotations::parse::{Request, parse};
use crate::api::validated::{Workload, WorkloadKind};
use crate::samples::annotated as workload;
use crate::status::NoticeReason;
use kube::ResourceExt;
use redislease_core::backoff::Entropy;
use redislease_core::time::{Millis, Time};
use serde_json::json;

use crate::engine::annotated::*;

pub fn key(name: &str) -> WorkloadKey {
    ("shop".into(), Workload { kind: WorkloadKind::Deployment, name: name.into() })
}

/// The API server, as far as leases are concerned, and the controller's state.
#[derive(Default)]
pub struct World {
    pub state: AnnotatedWorkloads,
    pub leases: BTreeMap<String, LeaseFacts>,
    pub workloads: BTreeMap<String, WorkloadFacts>,
    pub now: Time,
    pub version: u64,
    pub reports: Vec<(NoticeReason, String)>,
    pub withdrawn: Vec<(NoticeReason, String)>,
    pub writes: Vec<String>,
    pub leads: RefCell<BTreeSet<String>>,
}

impl World {
    /// Everything is listed, and this replica leads on the quorum `default`.
    pub fn new() -> Self {
        let mut world = Self::unlisted();
        world.list();
        world
    }

    pub fn unlisted() -> Self {
        Self { now: Time(1000), version: 1, leads: RefCell::new(["default".to_owned()].into()), ..Self::default() }
    }

    pub fn list_workloads(&mut self) {
        self.state.workload(WorkloadKind::Deployment, Watched::ListBegins);
        for workload in self.workloads.values() {
            self.state.workload(WorkloadKind::Deployment, Watched::Seen(Box::new(workload.clone())));
        }
        self.state.workload(WorkloadKind::Deployment, Watched::ListEnds);
    }

    pub fn list_leases(&mut self) {
        self.state.lease(Watched::ListBegins);
        for lease in self.leases.values().filter(|lease| lease.created_for.is_some()) {
            self.state.lease(Watched::Seen(Box::new(lease.clone())));
        }
        self.state.lease(Watched::ListEnds);
    }

    pub fn list(&mut self) {
        self.list_workloads();
        self.list_leases();
    }

    /// The same API server after a restart of the operator.
    pub fn restarted(self) -> Self {
        let Self { leases, workloads, version, .. } = self;
        Self { leases, workloads, version, ..Self::unlisted() }
    }

    pub fn apply(&mut self, workload: WorkloadFacts) {
        self.workloads.insert(workload.key.1.name.clone(), workload.clone());
        self.state.workload(WorkloadKind::Deployment, Watched::Seen(Box::new(workload)));
        self.work();
    }

    /// A lease that a user created.
    pub fn hand_made(&mut self, name: &str) {
        let parsed = parse(&workload(name, &[("lease", "true")]));
        let Request::Lease(desired) = parsed.request else { panic!("valid") };
        let lease = LeaseFacts {
            namespace: "shop".into(),
            name: name.into(),
            uid: format!("by-hand-{name}"),
            version: Some("1".into()),
            deleting: false,
            created_for: None,
            controller: None,
            has_owner: false,
            spec: desired.spec,
        };
        self.leases.insert(name.to_owned(), lease);
    }

    /// The workloads that need a decision.
    pub fn due(&mut self) -> Vec<WorkloadKey> {
        std::iter::from_fn(|| self.state.next_due(self.now)).collect()
    }

    /// Makes the decisions that are due.
    pub fn decide(&mut self, leads: impl Fn(&str) -> bool) -> Vec<Effect> {
        let due = self.due();
        due.iter().flat_map(|key| self.state.decide(self.now, key, &leads)).collect()
    }

    /// Carries out all effects, until there is none.
    pub fn work(&mut self) {
        for _ in 0..100 {
            let leads = self.leads.borrow().clone();
            let effects = self.decide(|quorum| leads.contains(quorum));
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::Report(_, _, problem) => self.reports.push((problem.reason, problem.note)),
                    Effect::Withdraw(_, problem) => self.withdrawn.push((problem.reason, problem.note)),
                    Effect::Change(key, change) => {
                        let outcome = self.make(change);
                        self.state.changed(self.now, &key, outcome, Entropy(1 << 63));
                    }
                }
            }
        }
        panic!("it never ends: {:?}", self.writes);
    }

    fn make(&mut self, change: Change) -> Changed<Box<LeaseFacts>> {
        self.version += 1;
        let version = Some(self.version.to_string());
        match change {
            Change::Create(lease) => {
                let name = lease.name_any();
                self.writes.push(format!("create {name}"));
                if let Some(found) = self.leases.get(&name) {
                    return Changed::Exists(Box::new(found.clone()));
                }
                let uid = format!("lease-{}", self.version);
                let lease = LeaseFacts { uid, version, ..LeaseFacts::from(&*lease) };
                self.leases.insert(name, lease.clone());
                Changed::Written(Box::new(lease))
            }
            Change::Patch { name, patch, .. } => {
                self.writes.push(format!("patch {name}"));
                let lease = self.leases.get_mut(&name).expect("it exists");
                assert_eq!(patch["metadata"]["uid"], json!(lease.uid));
                if patch["metadata"]["resourceVersion"] != json!(lease.version) {
                    return Changed::Outdated;
                }
                lease.version = version;
                let duration = patch["spec"]["leaseDuration"].as_str().expect("a duration");
                lease.spec.lease_duration = crate::api::Duration::new(duration);
                lease.spec.granularity = serde_json::from_value(patch["spec"]["granularity"].clone()).unwrap();
                let activation = patch["spec"].get("activation").expect("a merge patch keeps what it does not name");
                lease.spec.activation = serde_json::from_value(activation.clone()).unwrap();
                if let Some(owner) = patch["metadata"]["ownerReferences"].get(0) {
                    lease.controller = Some(owner["uid"].as_str().expect("a UID").to_owned());
                    lease.has_owner = true;
                }
                Changed::Written(Box::new(lease.clone()))
            }
            Change::Delete { workload, lease } => {
                if !is_unwanted(self.workloads.get(&workload.1.name), &lease) {
                    self.writes.push(format!("keep {}", lease.name));
                    return Changed::Outdated;
                }
                self.writes.push(format!("delete {}", lease.name));
                self.leases.remove(&lease.name);
                Changed::Deleted(lease.uid)
            }
        }
    }

    /// The watch shows every lease as it is.
    pub fn show(&mut self) {
        for lease in self.leases.values().filter(|lease| lease.created_for.is_some()) {
            self.state.lease(Watched::Seen(Box::new(lease.clone())));
        }
        self.work();
    }

    pub fn passes(&mut self, millis: u64) {
        self.now += Millis(millis);
        self.work();
    }

    pub fn written(&mut self) -> Vec<String> {
        std::mem::take(&mut self.writes)
    }
}
