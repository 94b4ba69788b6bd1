//! A panic is contained to its lease.

use std::collections::BTreeMap;
use std::sync::Arc;

use redislease_plan::api::RedisLease;
use redislease_plan::election::Cluster;
use redislease_plan::engine::{Config, Watched};
use redislease_plan::index::Index;
use redislease_plan::plan::{Allowed, Effect as Planned, Event, Identity, News, PERMITS, PermitUses};
use serde_json::json;

use super::*;

/// The text of a warning that panics when it is carried out.
const PANICS: &str = "panic";

/// A machine that warns with the name of its lease in each turn. That of the lease `broken` panics.
struct Warns {
    name: String,
    effects: Vec<Planned>,
}

impl Machine for Warns {
    type Config = ();

    fn new((): &(), identity: Identity) -> Self {
        Self { name: identity.name, effects: Vec::new() }
    }

    fn handle(&mut self, _: Time, _: Event) {
        assert_ne!(self.name, "broken", "planned by the test");
        self.effects.push(Planned::Warn(self.name.clone()));
    }

    fn poll_effect(&mut self) -> Option<Planned> {
        self.effects.pop()
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn holder(&self) -> Option<(String, String)> {
        None
    }

    fn awaits_api_answer(&self) -> bool {
        false
    }

    fn permit_uses(&self) -> PermitUses {
        PermitUses::default()
    }

    fn is_finished(&self) -> bool {
        false
    }
}

#[derive(Default)]
struct Fake {
    done: Vec<String>,
    panics: BTreeMap<bool, u32>,
}

impl Outside for Fake {
    fn now(&self) -> Time {
        Time(0)
    }

    fn authority(&self, _: &str) -> Authority {
        Authority::Lead
    }

    fn quorum(&mut self, _: &QuorumUpdate) {}

    fn surroundings(&mut self, _: LeaseId, _: &str) -> Surroundings {
        let wall = jiff::Timestamp::UNIX_EPOCH;
        let (news, authority) = (News::default(), Authority::Lead);
        Surroundings { news, authority, authority_gains: 0, api_answered_at: None, wall }
    }

    fn carry_out(&mut self, effect: Effect) -> Option<Input> {
        if let Effect::Lease(subject, effect) = effect {
            assert_ne!(effect, Planned::Warn(PANICS.into()), "planned by the test");
            self.done.push(format!("{} {effect:?}", subject.name));
        }
        None
    }

    fn turned(&mut self, _: Duration, panicked: bool) {
        *self.panics.entry(panicked).or_default() += 1;
    }

    fn panicked(&mut self) {
        self.done.push("panicked".into());
    }

    fn attempts_wait(&mut self, _: usize) {}
}

#[test]
fn a_panic_in_a_turn_or_an_effect_is_contained_to_its_lease() {
    let config = Config {
        cluster: Arc::new(Cluster { name: "c".into(), uid: "u".into() }),
        allowed: Allowed::default(),
        permits: PERMITS,
        machines: (),
    };
    let mut driver = Driver::new(Engine::<Warns>::new(config, Index::new("system")), Fake::default());
    for name in ["broken", PANICS, "whole"] {
        let lease: RedisLease = serde_json::from_value(json!({
            "apiVersion": "redislease.io/v1alpha1",
            "kind": "RedisLease",
            "metadata": {"namespace": name, "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"},
            "spec": {"quorumRef": {"name": "default"}, "candidates": {"selector": {"matchLabels": {"app": "a"}}}},
        }))
        .unwrap();
        driver.take(Input::Lease(Watched::Seen(Box::new(lease))));
    }
    assert!(driver.work(Instant::now() + Duration::from_mins(1)));
    let Fake { done, panics } = &driver.outside;
    let of = |name: &str| done.iter().filter(|done| done.starts_with(name)).collect::<Vec<_>>();
    assert_eq!(of("whole"), ["whole Warn(\"whole\")"]);
    for name in ["broken", PANICS] {
        let [withdrawn, reported] = of(&format!("{name} "))[..] else { panic!("{done:?}") };
        assert!(withdrawn.contains("WithdrawStatus") && reported.contains("planned by the test"), "{done:?}");
    }
    assert_eq!((of("panicked").len(), panics), (2, &BTreeMap::from([(true, 2), (false, 1)])));
    assert_eq!(driver.next_deadline(), Some(Time(1000)), "a new machine after the pause");
}
