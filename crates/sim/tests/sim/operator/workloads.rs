//! The reads of workloads that are candidates themselves.

use kube::core::Expression;
use redislease::index::{WorkloadFound, WorkloadKey, WorkloadRead};
use redislease_core::time::Time;

use crate::api::calls::Reply;
use crate::operator::writer::Job;
use crate::world::World;

impl World {
    /// Reads the workloads that are due.
    pub fn read_workloads(&mut self, process: usize, now: Time) {
        while let Some(key) = self.processes[process].index.next_workload(now) {
            self.submit(process, Job::ReadWorkload(key));
        }
    }

    pub fn workload_reply(&mut self, process: usize, key: &WorkloadKey, reply: Reply) {
        let Reply::Workload(object) = reply else {
            return self.check.fail(format!("{reply:?} is no workload"));
        };
        let now = Time(self.local(process));
        // No lease uses the pods of the workload.
        let selector = Expression::Equal("app".to_owned(), "none".to_owned()).into();
        let read = if object.is_some() { WorkloadRead::Selects(selector) } else { WorkloadRead::Missing };
        self.processes[process].index.workload_read(key, WorkloadFound { read, object }, now);
        self.wake_marked(process);
    }
}
