//! One cluster's API server: resources with a resourceVersion, pods, and outages of both kinds.

use std::collections::BTreeMap;

use redislease_core::lease::TermId;
use redislease_core::op::{Attempt, Token};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    pub uid: u32,
    pub version: u64,
    pub suspend: bool,
    pub term: Option<TermId>,
    pub active: bool,
    pub token: Token,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PodState {
    Running,
    Deleting,
    /// Every container has terminated: the proof.
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pod {
    /// The place of the lease it is a candidate of.
    pub resource: usize,
    pub state: PodState,
}

/// One change of a status.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Patch {
    /// The publication.
    Name(TermId),
    /// The named term is over.
    Inactive(Attempt),
    /// The keys of the named term have ended. The token stays.
    Clear(Attempt),
}

/// What the server says to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    Written,
    /// Another resourceVersion, or a rule of the schema.
    Conflict,
    /// No resource of this uid.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Up,
    Killed,
    Hanging,
}

/// What a process asks for.
#[derive(Clone, Debug)]
pub enum Ask {
    List,
    Write { resource: usize, uid: u32, version: u64, patch: Patch, blind: bool },
}

/// Everything a client sees, at one version of the world.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub version: u64,
    pub resources: Vec<Option<Resource>>,
    pub pods: BTreeMap<u32, Pod>,
}

pub struct Api {
    pub mode: Mode,
    pub world: Listing,
    /// Writes that changed something.
    pub writes: u64,
    /// Requests that hang; some of them are carried out when the server goes on.
    pub hanging: Vec<crate::world::ApiCall>,
}

impl Api {
    pub fn new(resources: usize) -> Self {
        let world = Listing { resources: vec![None; resources], ..Listing::default() };
        Self { mode: Mode::Up, world, writes: 0, hanging: Vec::new() }
    }

    pub fn next_version(&mut self) -> u64 {
        self.world.version += 1;
        self.world.version
    }

    pub fn create(&mut self, resource: usize, uid: u32) {
        let version = self.next_version();
        self.world.resources[resource] =
            Some(Resource { uid, version, suspend: false, term: None, active: false, token: Token(0) });
    }

    /// Carries out a write. The second value says that a token fell.
    pub fn write(&mut self, resource: usize, uid: u32, version: u64, patch: &Patch, blind: bool) -> (Verdict, bool) {
        let next = self.world.version + 1;
        let Some(found) = self.world.resources[resource].as_mut().filter(|found| found.uid == uid) else {
            return (Verdict::Gone, false);
        };
        let named = |attempt: Attempt| found.term.as_ref().is_some_and(|term| term.attempt == attempt);
        let allowed = match patch {
            Patch::Name(id) => id.token > found.token || blind,
            Patch::Inactive(attempt) => named(*attempt) && found.active,
            Patch::Clear(attempt) => named(*attempt) && !found.active,
        };
        if !allowed || (found.version != version && !blind) {
            return (Verdict::Conflict, false);
        }
        let before = found.token;
        match patch {
            Patch::Name(id) => (found.term, found.active, found.token) = (Some(id.clone()), true, id.token),
            Patch::Inactive(_) => found.active = false,
            Patch::Clear(_) => found.term = None,
        }
        found.version = next;
        self.world.version = next;
        self.writes += 1;
        let fell = self.world.resources[resource].as_ref().is_some_and(|found| found.token < before);
        (Verdict::Written, fell)
    }
}
