//! The reads of workloads that are candidates themselves.

use std::sync::Arc;

use redislease_plan::api::names;
use redislease_plan::api::validated::{Workload, WorkloadKind};
use redislease_plan::election::WorkloadFacts;
use redislease_plan::engine::Input;
use redislease_plan::index::{WorkloadFound, WorkloadKey};

use crate::api::objects;
use crate::api::objects::NAMESPACE;
use crate::api::server::Mode;
use crate::chaos::bug::Bug;
use crate::event::Inside;
use crate::redis::clock::SECOND;
use crate::world::World;

/// The workload as if it named its lease.
fn with_consent(object: Arc<WorkloadFacts>) -> Arc<WorkloadFacts> {
    let mut facts = Arc::unwrap_or_clone(object);
    let lease = facts.name.clone();
    facts.annotations.set(names::ACTIVATED_BY_ANNOTATION, Some(&lease));
    Arc::new(facts)
}

impl World {
    /// The watch shows that a workload has changed. A watch that is cut off shows it later.
    pub fn workload_watched(&mut self, process: usize, place: usize) {
        let watching = &self.processes[process];
        if watching.api_cut > 0 || self.apis[watching.cluster].mode != Mode::Up {
            return self.later(process, SECOND, Inside::WatchedWorkload { place });
        }
        if self.is(Bug::WorkloadIsStale) && self.processes[process].saw_workloads >= 2 {
            return;
        }
        let cluster = watching.cluster;
        self.processes[process].saw_workloads += 1;
        let workload = Workload { kind: WorkloadKind::Deployment, name: objects::lease_name(place) };
        let facts = self.apis[cluster].workload_of(place);
        let marked_by = facts.map(|facts| facts.marked_by().map(str::to_owned).collect()).unwrap_or_default();
        self.tell_engine(process, Input::WorkloadChanged(((NAMESPACE.into(), workload), marked_by)));
    }

    pub fn workload_read(&mut self, process: usize, key: WorkloadKey, mut found: WorkloadFound) {
        if self.is(Bug::ConsentIgnored) {
            found.object = found.object.map(with_consent);
        }
        self.tell_engine(process, Input::Workload(key, found));
    }
}
