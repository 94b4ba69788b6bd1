//! Services and EndpointSlices: those of leases, and those that users made.

use std::collections::BTreeSet;
use std::sync::Arc;

use redislease::plan::{Family, Prepared, ServiceFacts, SliceChange, SliceFacts, SliceWrite};

use crate::api::calls::Reply;
use crate::api::objects::{self, SliceKey};
use crate::api::server::{ApiServer, Change, Verdict};
use crate::chaos::bug::Bug;
use crate::check::coverage::Sight;
use crate::check::trace::Note;
use crate::redis::clock::{Micros, SECOND};
use crate::world::{Event, World};

/// How long the garbage collector of Kubernetes leaves the objects of a deleted lease.
const COLLECTED_AFTER: Micros = 15 * SECOND;

/// The UID of a slice that a user made.
const MADE_BY_A_USER: &str = "slice-uid-of-a-user";

/// Who created a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    User,
    /// An operator, for the lease with this UID.
    Lease(u32),
}

/// A Service.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its address families, the primary one first.
    pub families: Vec<Family>,
    /// `None` while it does not exist.
    pub made: Option<Maker>,
}

/// A slice with an endpoint that a user made for a Service. With a family, it has the name that the operator would give to
/// its own slice.
pub type ForeignSlice = (usize, Option<Family>);

impl ApiServer {
    /// Creates, changes or removes the EndpointSlice of a lease, and the Service with it.
    pub fn write_slice(
        &mut self,
        place: usize,
        owner: Option<u32>,
        write: &SliceWrite,
        checked: bool,
    ) -> (Verdict, Option<Change>) {
        let of = objects::written_slice(write);
        let found = self.state.slices.get(&of).cloned();
        let deletes_service = write.change == (SliceChange::Remove { with_service: true });
        let found = match (&write.uid, found) {
            // It removes only a Service.
            (None, _) if matches!(write.change, SliceChange::Remove { .. }) => {
                self.delete_service(of.0, owner);
                return (Verdict::Written, None);
            }
            (None, None) if self.is_foreign(of) => return (Verdict::Refused, None),
            (None, Some(_)) => return (Verdict::Conflict, None),
            (None, None) => None,
            (Some(uid), Some(found)) if found.uid == *uid => Some(found),
            (Some(_), _) => return (Verdict::Gone, None),
        };
        if checked && found.as_ref().is_some_and(|found| found.version != write.version) {
            return (Verdict::Conflict, None);
        }
        if self.refuses_writes {
            return (Verdict::Refused, None);
        }
        let before = found.clone();
        let mut facts = match found {
            Some(found) => SliceFacts::clone(&found),
            None => objects::slice(place, owner.unwrap_or_default(), self.state.version, write),
        };
        match &write.change {
            SliceChange::Remove { .. } => {
                if deletes_service {
                    self.delete_service(of.0, owner);
                }
                self.writes.slice += 1;
                return (Verdict::Written, self.remove_slice(of));
            }
            SliceChange::Put { token, endpoint, ports } => {
                facts.token = *token;
                facts.endpoints = endpoint.iter().cloned().collect();
                facts.ports.clone_from(ports);
            }
        }
        if before.as_deref() == Some(&facts) {
            return (Verdict::Written, None);
        }
        self.writes.slice += 1;
        let version = self.next_version();
        facts.version = Some(version.to_string());
        let facts = Arc::new(facts);
        self.state.slices.insert(of, facts.clone());
        (Verdict::Written, Some(self.record(Change::Slice { version, facts, deleted: false })))
    }

    fn remove_slice(&mut self, of: SliceKey) -> Option<Change> {
        let facts = self.state.slices.get(&of)?.clone();
        let version = self.next_version();
        self.state.slices.remove(&of);
        Some(self.record(Change::Slice { version, facts, deleted: true }))
    }

    /// Deletes the Service if an operator created it for this lease.
    fn delete_service(&mut self, service: usize, owner: Option<u32>) {
        let made = &mut self.services[service].made;
        if owner.is_some_and(|owner| *made == Some(Maker::Lease(owner))) {
            *made = None;
            self.writes.services_deleted += 1;
        }
    }

    /// Whether the lease of this place still wants the Service. Without `owner`, whether there is a lease.
    pub fn wants(&self, place: usize, owner: Option<u32>, service: &str) -> bool {
        self.state.leases[place].as_deref().is_some_and(|lease| {
            let names_it = lease.spec.active_service.as_ref().is_some_and(|active| active.name == service);
            let lives = lease.metadata.deletion_timestamp.is_none();
            owner.is_none_or(|owner| names_it && objects::uid_of(lease) == owner && lives)
        })
    }

    /// The slices of a Service.
    pub fn slices_of(&self, service: usize) -> impl Iterator<Item = &Arc<SliceFacts>> {
        self.state.slices.iter().filter(move |((of, _), _)| *of == service).map(|(_, slice)| slice)
    }

    /// Adds or removes the second family of a Service.
    pub fn change_families(&mut self, service: usize) {
        let families = &mut self.services[service].families;
        match families[..] {
            [Family::V4] => families.push(Family::V6),
            [Family::V6] => families.push(Family::V4),
            _ => families.truncate(1),
        }
    }

    /// Whether a user made the slice with this name.
    fn is_foreign(&self, (service, family): SliceKey) -> bool {
        self.foreign.contains(&(service, Some(family)))
    }

    /// A user makes a slice for the Service, if there is none with its name. Returns whether it is new.
    pub fn add_foreign(&mut self, slice: ForeignSlice) -> bool {
        slice.1.is_none_or(|family| !self.state.slices.contains_key(&(slice.0, family))) && self.foreign.insert(slice)
    }

    /// The pods that are endpoints of a Service, in any family.
    pub fn endpoints(&self, service: usize) -> BTreeSet<u32> {
        let of = self.state.slices.iter().filter(|((of, _), _)| *of == service);
        of.flat_map(|(_, slice)| &slice.endpoints).map(|endpoint| objects::number(&endpoint.uid)).collect()
    }

    /// Removes the objects of a deleted lease, as the garbage collector of Kubernetes does.
    fn collect(&mut self, uid: u32) -> Vec<Change> {
        for service in &mut self.services {
            service.made = service.made.filter(|made| *made != Maker::Lease(uid));
        }
        let owner = Some(objects::lease_uid(uid));
        let of_lease = self.state.slices.iter().filter(|(_, slice)| slice.owner == owner).map(|(&of, _)| of);
        let of_lease: Vec<SliceKey> = of_lease.collect();
        of_lease.into_iter().filter_map(|of| self.remove_slice(of)).collect()
    }
}

impl World {
    /// Reads a Service for the pod of a lease, and creates it if it does not exist.
    pub fn serve_service(
        &mut self,
        cluster: usize,
        (place, uid): (usize, u32),
        service: usize,
        pod: u32,
    ) -> Result<(Box<Prepared>, Vec<Arc<SliceFacts>>), String> {
        let api = &mut self.apis[cluster];
        api.writes.reads += 1;
        if api.refuses_services {
            self.coverage.saw(Sight::ServiceRefused);
            return Err("forbidden".into());
        }
        let exists = api.state.pods.contains_key(&pod);
        let made = &mut api.services[service].made;
        let mut prepared = Prepared { ports: exists.then(Vec::new), ..Prepared::default() };
        if made.is_none() && exists {
            if api.refuses_writes {
                prepared.refused = Some("a webhook".into());
            } else {
                *made = Some(Maker::Lease(uid));
                self.coverage.saw(Sight::ServiceMade);
            }
        }
        let families = api.services[service].families.clone();
        prepared.service = api.services[service].made.map(|_| ServiceFacts { families, ..ServiceFacts::default() });
        let lease = objects::lease_name(place);
        let (own, others): (Vec<_>, Vec<_>) = api.slices_of(service).cloned().partition(|slice| slice.lease == lease);
        prepared.other_lease = others.first().map(|slice| slice.lease.clone());
        if prepared.other_lease.is_some() {
            self.coverage.saw(Sight::ServiceTaken);
        }
        if api.foreign.iter().any(|(of, _)| *of == service) {
            prepared.foreign_slice = Some("by-a-user".into());
            self.coverage.saw(Sight::ForeignSliceFound);
        }
        Ok((Box::new(prepared), own))
    }

    /// Carries out a write of a slice. Before a removal, the operator reads the lease.
    pub fn serve_slice(
        &mut self,
        process: usize,
        cluster: usize,
        (place, uid): (usize, Option<u32>),
        write: &SliceWrite,
    ) -> Reply {
        let of = objects::written_slice(write);
        if write.uid.as_deref() == Some(MADE_BY_A_USER) {
            self.check.fail(format!("process {process} writes {}, which a user made", write.name));
        }
        if write.uid.is_none() && self.is(Bug::ForeignSliceTaken) && self.apis[cluster].is_foreign(of) {
            let slice = objects::slice(place, uid.unwrap_or_default(), 0, write);
            let slice = SliceFacts { uid: MADE_BY_A_USER.into(), version: Some("1".into()), owner: None, ..slice };
            return Reply::Slice(Verdict::Conflict, Some(Arc::new(slice)));
        }
        let removes = matches!(write.change, SliceChange::Remove { .. });
        let must_be_read = removes && (uid.is_none() || write.change == SliceChange::Remove { with_service: true });
        let wanted = must_be_read && self.apis[cluster].wants(place, uid, &write.service);
        if wanted && !self.is(Bug::RemovesUnread) {
            return Reply::Slice(Verdict::Conflict, self.apis[cluster].state.slices.get(&of).cloned());
        }
        let deleted = self.apis[cluster].writes.services_deleted;
        let checked = !self.is(Bug::SlicesWithoutVersion);
        let (verdict, change) = self.apis[cluster].write_slice(place, uid, write, checked);
        if self.apis[cluster].writes.services_deleted > deleted {
            self.coverage.saw(Sight::ServiceRemoved);
            if wanted {
                self.check.fail(format!("process {process} deletes Service {}, which lease {place} names", of.0));
            }
        }
        if wanted && change.is_some() {
            self.check.fail(format!("process {process} removes {}, although lease {place} exists", write.name));
        }
        let endpoint = write.change.endpoint().map(|endpoint| objects::number(&endpoint.uid));
        self.note(Note::WroteSlice { process, place, family: write.family.as_str(), endpoint, verdict });
        self.count_write(process, cluster, verdict);
        let endpoints = self.apis[cluster].endpoints(of.0);
        if change.is_some() && endpoints.len() > 1 {
            self.check
                .fail(format!("Service {} of cluster {cluster} has the pods {endpoints:?} as endpoints at once", of.0));
        }
        self.tell(cluster, change);
        Reply::Slice(verdict, self.apis[cluster].state.slices.get(&of).cloned())
    }

    /// A lease was deleted.
    pub fn collect_later(&mut self, cluster: usize, uid: u32) {
        self.after(COLLECTED_AFTER, Event::Collect { cluster, uid });
    }

    pub fn collect(&mut self, cluster: usize, uid: u32) {
        for change in self.apis[cluster].collect(uid) {
            self.tell(cluster, Some(change));
        }
    }
}
