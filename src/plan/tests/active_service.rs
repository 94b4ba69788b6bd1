//! The Service that follows the holder.

#[path = "active_service_faults.rs"]
mod faults;

use super::*;
use crate::status::NoticeReason;

const SERVICE: &str = "billing-active";

fn http(target: TargetPort) -> ServicePort {
    let port = SlicePort { name: "http".into(), protocol: "TCP".into(), port: 80, app_protocol: None };
    ServicePort { port, target }
}

fn prepared(families: &[Family]) -> Prepared {
    let ports = vec![http(TargetPort::Name("web".into()))];
    let service = ServiceFacts { families: families.to_vec(), ports, ..ServiceFacts::default() };
    let web = ContainerPort { name: "web".into(), protocol: "TCP".into(), number: 8080 };
    Prepared { service: Some(service), ports: Some(vec![web]), ..Prepared::default() }
}

fn request(pod: &str) -> ServiceRequest {
    ServiceRequest { service: SERVICE.into(), pod: pod.into(), pod_uid: format!("uid-{pod}") }
}

impl Story {
    /// `a` holds the lease; the spec names the Service.
    fn with_service() -> Self {
        let mut story = Self::held_by_a();
        story.name_service(Some(SERVICE));
        story
    }

    fn name_service(&mut self, name: Option<&str>) {
        let status = serde_json::to_value(&self.facts.lease.as_ref().unwrap().status).unwrap();
        let spec = json!({"activeService": name.map(|name| json!({"name": name}))});
        self.store(&spec, &status);
        self.turn();
    }

    /// `a` is the endpoint in these families.
    fn routed(families: &[Family]) -> Self {
        let mut story = Self::with_service();
        story.serve(&prepared(families));
        story
    }

    /// `b` holds the lease after `a` lost it. The writes for the loss are done.
    fn next_holder(&mut self) {
        self.facts.holder = PodKnowledge::Unseen;
        self.view(publishing(term(2, 8, "b")));
        self.write();
        self.holder(pod("b"));
        self.view(held(term(2, 8, "b")));
    }

    fn slice_writes(&self) -> Vec<SliceWrite> {
        let of = |effect: &Effect| match effect {
            Effect::WriteSlice(write) => Some((**write).clone()),
            _ => None,
        };
        self.effects.iter().filter_map(of).collect()
    }

    fn prepares(&self) -> Option<ServiceRequest> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::PrepareService(request) => Some(request.clone()),
            _ => None,
        })
    }

    /// The API server accepts every status and every write of a slice, and answers every preparation with this, until nothing is left to
    /// do. Returns the writes in order.
    fn serve(&mut self, prepared: &Prepared) -> Vec<String> {
        let mut order = Vec::new();
        loop {
            let (writes, request, status) = (self.slice_writes(), self.prepares(), self.status_write());
            if writes.is_empty() && request.is_none() && status.is_none() {
                return order;
            }
            if let Some(write) = status {
                let mut lease = self.facts.lease.as_deref().unwrap().clone();
                lease.status = Some(Arc::unwrap_or_clone(write.status));
                let lease = Arc::new(lease);
                self.facts.lease = Some(lease.clone());
                self.reconciler.handle(self.now, Event::StatusWritten(StatusOutcome::Written(lease)));
            }
            for write in writes {
                order.push(title(&write));
                self.apply_slice(&write);
                let outcome = RoleOutcome::Written;
                self.reconciler.handle(self.now, Event::SliceWritten { name: write.name, outcome });
            }
            if let Some(request) = request {
                let found = Ok(Box::new(prepared.clone()));
                self.reconciler.handle(self.now, Event::ServicePrepared { request, found });
            }
            self.turn();
            assert!(self.endpoints().windows(2).all(|pair| pair[0] == pair[1]), "{:?}", self.endpoints());
        }
    }

    /// The API server accepts one write.
    fn answer_slice(&mut self, write: &SliceWrite) {
        self.apply_slice(write);
        self.event(Event::SliceWritten { name: write.name.clone(), outcome: RoleOutcome::Written });
    }

    /// The term is lost. The API server accepts the status, and not yet the writes of slices, which are returned.
    fn loses(&mut self, id: TermId) -> Vec<SliceWrite> {
        self.view(ending(id, EndReason::Misses));
        let writes = self.slice_writes();
        self.write();
        writes
    }

    /// The message of the condition Ready on the API server.
    fn status_message(&self) -> String {
        let status = self.facts.lease.as_ref().unwrap().status.clone().unwrap();
        status.condition(ConditionType::Ready).unwrap().message.clone()
    }

    fn apply_slice(&mut self, write: &SliceWrite) {
        let at = self.facts.slices.iter().position(|slice| slice.name == write.name);
        assert_eq!(
            at.map(|at| self.facts.slices[at].version.clone()),
            write.uid.as_ref().map(|_| write.version.clone())
        );
        let found = at.map(|at| self.facts.slices.remove(at).as_ref().clone());
        let SliceChange::Put { token, endpoint, ports } = &write.change else { return };
        let mut slice = found.unwrap_or_else(|| slice(write.family, 1));
        slice.token = *token;
        slice.endpoints = endpoint.iter().cloned().collect();
        slice.ports.clone_from(ports);
        let version: u64 = slice.version.as_ref().unwrap().parse().unwrap();
        slice.version = Some((version + 1).to_string());
        self.facts.slices.push(Arc::new(slice));
    }

    /// The pods of all endpoints.
    fn endpoints(&self) -> Vec<String> {
        let endpoints = self.facts.slices.iter().flat_map(|slice| &slice.endpoints);
        endpoints.map(|endpoint| endpoint.pod.clone()).collect()
    }

    fn problems(&self) -> Vec<String> {
        let of = |effect: &Effect| match effect {
            Effect::Report(notice) if notice.reason == NoticeReason::ActiveServiceProblem => Some(notice.note.clone()),
            _ => None,
        };
        self.effects.iter().filter_map(of).collect()
    }
}

fn slice(family: Family, version: u64) -> SliceFacts {
    SliceFacts {
        uid: format!("uid-{}", family.as_str()),
        version: Some(version.to_string()),
        ..SliceFacts::new("jobs", "billing", "uid-billing", SERVICE, family)
    }
}

/// Such as `IPv4 a`, or `IPv4 -` for a withdrawal.
fn title(write: &SliceWrite) -> String {
    let change = match &write.change {
        SliceChange::Put { .. } if write.uid.is_none() => "new",
        SliceChange::Put { endpoint: Some(endpoint), .. } => &endpoint.pod,
        SliceChange::Put { endpoint: None, .. } => "-",
        SliceChange::Remove { with_service: true } => "removed with the Service",
        SliceChange::Remove { with_service: false } => "removed",
    };
    format!("{} {change}", write.family.as_str())
}

const BOTH: [Family; 2] = [Family::V4, Family::V6];

#[test]
fn the_holder_becomes_the_only_endpoint_of_new_slices() {
    let mut story = Story::with_service();
    assert_eq!(story.prepares(), Some(request("a")));
    assert_eq!(story.serve(&prepared(&BOTH)), ["IPv4 new", "IPv6 new", "IPv4 a", "IPv6 a"]);
    let slices: Vec<_> =
        story.facts.slices.iter().map(|slice| (slice.endpoints[0].clone(), slice.ports.clone())).collect();
    let addresses: Vec<_> = slices.iter().map(|(endpoint, _)| endpoint.addresses[0].as_str()).collect();
    assert_eq!(addresses, ["10.0.0.7", "fd00::7"]);
    assert!(slices.iter().all(|(_, ports)| ports.len() == 1 && ports[0].port == 8080 && ports[0].name == "http"));
    assert!(slices.iter().all(|(endpoint, _)| endpoint.ready && endpoint.serving && !endpoint.terminating));
    story.pass(60_000);
    assert_eq!((story.slice_writes(), story.prepares()), (Vec::new(), None), "renewals write nothing");
    story.pass(300_000);
    assert_eq!(story.prepares(), Some(request("a")), "the Service may have changed");
    assert_eq!(story.serve(&prepared(&BOTH)), [""; 0]);
}

#[test]
fn one_family_costs_two_writes_for_a_handover() {
    let mut story = Story::routed(&[Family::V4]);
    story.view(ending(term(1, 7, "a"), EndReason::Misses));
    assert_eq!(story.serve(&prepared(&[Family::V4])), ["IPv4 -"]);
    story.next_holder();
    assert_eq!(story.serve(&prepared(&[Family::V4])), ["IPv4 b"]);
}

#[test]
fn the_second_slice_has_the_new_token_before_the_first_has_the_new_endpoint() {
    let mut story = Story::routed(&BOTH);
    story.view(ending(term(1, 7, "a"), EndReason::Misses));
    assert_eq!(story.serve(&prepared(&BOTH)), ["IPv4 -", "IPv6 -"]);
    story.next_holder();
    assert_eq!(story.serve(&prepared(&BOTH)), ["IPv6 -", "IPv4 b", "IPv6 b"]);
    assert!(story.facts.slices.iter().all(|slice| slice.token == Some(Token(8))));
}

#[test]
fn another_pod_is_withdrawn_before_the_service_is_known() {
    let mut story = Story::routed(&BOTH);
    // This process did not see the end of the first term.
    story.reconciler = Reconciler::new(story.reconciler.identity().clone());
    story.turn();
    story.view(View { standing: Standing::Adopting(term_view(term(1, 7, "a"))), ..View::default() });
    assert_eq!(story.slice_writes(), []);
    story.view(ending(term(1, 7, "a"), EndReason::Misses));
    let titles: Vec<String> = story.slice_writes().iter().map(title).collect();
    assert_eq!(titles, ["IPv4 -", "IPv6 -"]);
    assert!(story.slice_writes().iter().all(|write| write.not_after.is_none() && write.priority == Priority::Active));
}

#[test]
fn an_unsent_endpoint_is_withdrawn_and_an_unanswered_one_is_overwritten() {
    let mut story = Story::with_service();
    let found = || Ok(Box::new(prepared(&[Family::V4])));
    story.facts.slices = vec![Arc::new(SliceFacts { token: Some(Token(7)), ..slice(Family::V4, 5) })];
    story.facts.stop_at = Some(Time(5_000_000));
    story.event(Event::ServicePrepared { request: request("a"), found: found() });
    let write = story.slice_writes().remove(0);
    assert_eq!((title(&write).as_str(), write.not_after), ("IPv4 a", Some(Time(5_000_000))));
    story.view(ending(term(1, 7, "a"), EndReason::Deadline));
    assert!(story.wants(&Effect::WithdrawSlice { name: write.name.clone() }), "{:?}", story.effects);
    let outcome = RoleOutcome::Unanswered("timeout".into());
    story.event(Event::SliceWritten { name: write.name, outcome });
    let titles: Vec<String> = story.slice_writes().iter().map(title).collect();
    assert_eq!(titles, ["IPv4 -"], "no endpoint was observed");
    let write = story.slice_writes().remove(0);
    assert!(!write.change.is_in(&story.facts.slices[0]), "the version changes");
}

#[test]
fn no_endpoint_is_added_after_stop_at() {
    let mut story = Story::with_service();
    story.facts.slices = vec![Arc::new(SliceFacts { token: Some(Token(7)), ..slice(Family::V4, 5) })];
    story.facts.stop_at = Some(story.now);
    let found = Ok(Box::new(prepared(&[Family::V4])));
    story.event(Event::ServicePrepared { request: request("a"), found });
    assert_eq!(story.slice_writes(), []);
}

#[test]
fn readiness_and_deletion_of_the_holder_are_conditions_of_its_endpoint() {
    let mut story = Story::routed(&[Family::V4]);
    let conditions = |story: &Story| {
        let endpoint = &story.facts.slices[0].endpoints[0];
        (endpoint.ready, endpoint.serving, endpoint.terminating)
    };
    story.holder(PodFacts { ready: false, ..pod("a") });
    story.turn();
    story.serve(&prepared(&[Family::V4]));
    assert_eq!(conditions(&story), (false, false, false));
    story.holder(PodFacts { deletion_grace: Some(core::time::Duration::from_secs(30)), ..pod("a") });
    story.turn();
    story.serve(&prepared(&[Family::V4]));
    assert_eq!(conditions(&story), (false, true, true));
    let mut always = prepared(&[Family::V4]);
    always.service.as_mut().unwrap().publishes_not_ready = true;
    story.holder(pod("a"));
    story.pass(300_000);
    story.serve(&always);
    story.holder(PodFacts { ready: false, ..pod("a") });
    story.turn();
    story.serve(&always);
    assert_eq!(conditions(&story), (true, false, false));
}

#[test]
fn the_endpoint_is_removed_when_a_vanished_holder_is_given_up() {
    let mut story = Story::routed(&[Family::V4]);
    story.facts.holder = PodKnowledge::Gone { stopped: false };
    story.turn();
    assert!(story.commands().contains(&Command::End { term: term(1, 7, "a"), proof: false }), "{:?}", story.effects);
    story.view(ending(term(1, 7, "a"), EndReason::Decided));
    let titles: Vec<String> = story.slice_writes().iter().map(title).collect();
    assert_eq!(titles, ["IPv4 -"]);
}

#[test]
fn a_service_with_a_selector_is_reported_once_and_gets_no_slices() {
    let mut story = Story::routed(&[Family::V4]);
    let mut selects = prepared(&[Family::V4]);
    selects.service.as_mut().unwrap().has_selector = true;
    story.pass(300_000);
    let request = story.prepares().unwrap();
    story.event(Event::ServicePrepared { request, found: Ok(Box::new(selects.clone())) });
    let problems = story.problems();
    assert!(problems.len() == 1 && problems[0].contains("has a selector"), "{problems:?}");
    assert_eq!(story.serve(&selects), ["IPv4 -"]);
    story.pass(30_000);
    assert_eq!(story.serve(&selects), [""; 0]);
    assert_eq!(story.problems(), [""; 0], "it was reported before");
    story.pass(30_000);
    assert_eq!(story.serve(&prepared(&[Family::V4])), ["IPv4 a"], "the selector was removed");
}

#[test]
fn slices_of_another_service_or_an_earlier_lease_are_removed() {
    let mut story = Story::routed(&BOTH);
    story.name_service(Some("other"));
    let titles: Vec<String> = story.slice_writes().iter().map(title).collect();
    assert_eq!(titles, ["IPv4 removed with the Service", "IPv6 removed with the Service"]);
    let mut story = Story::with_service();
    let earlier = SliceFacts { owner: Some("uid-earlier".into()), ..slice(Family::V4, 3) };
    story.facts.slices = vec![Arc::new(earlier)];
    story.turn();
    let titles: Vec<String> = story.slice_writes().iter().map(title).collect();
    assert_eq!(titles, ["IPv4 removed"], "the Service is the same");
    // The Service has one family only now.
    let mut story = Story::routed(&BOTH);
    story.pass(300_000);
    assert_eq!(story.serve(&prepared(&[Family::V4])), ["IPv6 removed"]);
}

#[test]
fn the_slices_are_removed_with_the_field_and_with_the_lease() {
    let mut story = Story::routed(&BOTH);
    story.name_service(None);
    let removed = ["IPv4 removed with the Service", "IPv6 removed with the Service"];
    assert_eq!(story.serve(&prepared(&BOTH)), removed);
    assert!(story.facts.slices.is_empty());
    let mut story = Story::routed(&BOTH);
    story.facts.lease = None;
    story.turn();
    assert!(!story.reconciler.is_finished());
    assert_eq!(story.serve(&prepared(&BOTH)), removed);
    // Those of a successor with the same name are its own.
    let mut story = Story::routed(&BOTH);
    (story.facts.lease, story.facts.has_successor) = (None, true);
    story.turn();
    assert_eq!(story.slice_writes(), []);
}

#[test]
fn a_later_token_on_a_slice_is_checked_with_the_api_server_first() {
    let mut story = Story::with_service();
    let later = SliceFacts { token: Some(Token(99)), ..slice(Family::V4, 5) };
    story.facts.slices = vec![Arc::new(later)];
    story.turn();
    assert_eq!(story.slice_writes(), []);
    assert!(story.wants(&Effect::Read(Read::Lease)));
    story.event(Event::LeaseRead(Ok(story.facts.lease.clone())));
    let found = Ok(Box::new(prepared(&[Family::V4])));
    story.event(Event::ServicePrepared { request: request("a"), found });
    assert_eq!(story.serve(&prepared(&[Family::V4])), ["IPv4 a"], "99 was left by an older resource");
}

#[test]
fn a_conflict_reads_the_service_again() {
    let mut story = Story::routed(&[Family::V4]);
    story.view(ending(term(1, 7, "a"), EndReason::Misses));
    story.serve(&prepared(&[Family::V4]));
    story.next_holder();
    let found = Ok(Box::new(prepared(&[Family::V4])));
    story.event(Event::ServicePrepared { request: request("b"), found });
    let name = story.slice_writes().remove(0).name;
    story.event(Event::SliceWritten { name, outcome: RoleOutcome::Conflict });
    assert_eq!((story.prepares(), story.slice_writes()), (Some(request("b")), Vec::new()));
    assert_eq!(story.serve(&prepared(&[Family::V4])), ["IPv4 b"]);
}

#[test]
fn a_lease_without_a_service_has_no_state_for_one() {
    let mut story = Story::held_by_a();
    story.view(ending(term(1, 7, "a"), EndReason::Misses));
    assert!(story.reconciler.service.is_none() && story.prepares().is_none());
}
