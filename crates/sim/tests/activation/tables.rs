//! What states share: each lease, object, call and process is stored once and has a number, and each step of a process is computed
//! once.
//!
//! Two values are the same if their debug texts are: they show every field. A text is kept as a hash of 128 bits.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use redislease_plan::api::RedisLease;
use redislease_plan::election::{Candidate, Electorate};
use redislease_plan::plan::{RoleWrite, StatusWrite};

use crate::hash::{Mix, digest};
use crate::objects::{LeaseShows, ObjectShows};
use crate::process::{Input, Process, Step};

/// A call to the API server.
#[derive(Clone, Debug)]
pub enum Call {
    /// Write the status.
    Status(StatusWrite),
    /// Write the role of the object at this place.
    Role(usize, RoleWrite),
    /// Read the lease.
    ReadLease,
}

/// Values with numbers.
pub struct Numbered<T> {
    values: Vec<T>,
    numbers: HashMap<u128, u32, Mix>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { values: Vec::new(), numbers: HashMap::default() }
    }
}

impl<T: Debug> Numbered<T> {
    /// The number of the value.
    pub fn number(&mut self, value: T) -> u32 {
        let values = &mut self.values;
        *self.numbers.entry(digest(&value)).or_insert_with(|| {
            values.push(value);
            u32::try_from(values.len() - 1).unwrap()
        })
    }

    /// The value with this number.
    pub fn get(&self, number: u32) -> &T {
        &self.values[number as usize]
    }
}

/// All values.
#[derive(Default)]
pub struct Tables {
    leases: Numbered<Arc<RedisLease>>,
    objects: Numbered<Candidate>,
    pub calls: Numbered<Call>,
    pub processes: Numbered<Process>,
    /// The reconciler compares electorates by their address.
    pub electorates: HashMap<(Vec<u32>, bool), Arc<Electorate>, Mix>,
    shows: Vec<ObjectShows>,
    lease_shows: Vec<LeaseShows>,
    steps: HashMap<(u32, Input), Arc<Step>, Mix>,
}

impl Tables {
    /// The lease with this number.
    pub fn lease_of(&self, number: u32) -> &Arc<RedisLease> {
        self.leases.get(number)
    }

    /// The object with this number.
    pub fn object_of(&self, number: u32) -> &Candidate {
        self.objects.get(number)
    }

    /// The number of a lease.
    pub fn lease(&mut self, lease: Arc<RedisLease>) -> u32 {
        let shows = LeaseShows::of(&lease);
        let number = self.leases.number(lease);
        if number as usize == self.lease_shows.len() {
            self.lease_shows.push(shows);
        }
        number
    }

    /// The number of an object.
    pub fn object(&mut self, object: Candidate) -> u32 {
        let shows = ObjectShows::of(&object);
        let number = self.objects.number(object);
        if number as usize == self.shows.len() {
            self.shows.push(shows);
        }
        number
    }

    pub fn lease_shows(&self, lease: u32) -> LeaseShows {
        self.lease_shows[lease as usize]
    }

    pub fn object_shows(&self, object: u32) -> ObjectShows {
        self.shows[object as usize]
    }

    /// The step that was computed before.
    pub fn known(&self, process: u32, input: Input) -> Option<Arc<Step>> {
        self.steps.get(&(process, input)).cloned()
    }

    pub fn remember(&mut self, process: u32, input: Input, step: Step) -> Arc<Step> {
        let step = Arc::new(step);
        self.steps.insert((process, input), step.clone());
        step
    }

    /// How many steps were computed.
    pub fn computed(&self) -> usize {
        self.steps.len()
    }
}

impl Call {
    /// The call in a few words.
    pub fn brief(&self) -> String {
        match self {
            Self::Status(write) => {
                let shows = LeaseShows::of_status(0, &write.status);
                format!("status at {:?}: names {:?}, latest {}", write.version, shows.named, shows.latest)
            }
            Self::Role(_, write) => format!(
                "{} at {:?}: {:?} {:?} {:?} {:?}",
                write.pod, write.version, write.role, write.token, write.change, write.marks
            ),
            Self::ReadLease => "read of the lease".into(),
        }
    }
}
