//! The tests: each setup without a bug, until every state was seen, and then with each of its planted bugs.

use std::time::Instant;

use crate::jobs::{Size, is_selected, search_all};
use crate::objects::Kind;
use crate::planted::Planted;
use crate::search::{Found, search};
use crate::world::{Accidents, Seen, Setup};

/// A search stops at this number of states, and then it shows nothing.
const MOST: usize = 30_000_000;

/// One setup.
struct Case {
    /// Which runs search all of it. `make test` searches the bugs of each setup: the first state that breaks a rule ends a search.
    size: Size,
    setup: Setup,
    /// The least number of states: a search with fewer has left something out.
    states: usize,
    /// What must be seen.
    seen: fn(&Seen) -> bool,
    bugs: &'static [Planted],
}

const NONE: Accidents = Accidents { unanswered: 0, authority: 0, doubts: 0, time: 0 };

/// One workload, and one process that decides.
const PLAIN: Setup = Setup {
    name: "one process decides",
    kind: Kind::Workload(0),
    is_shared: false,
    is_orderly: true,
    terms: 2,
    slow: 4,
    accidents: Accidents { unanswered: 1, ..NONE },
};

const CASES: &[Case] = &[
    Case {
        size: Size::Quick,
        setup: PLAIN,
        states: 60_000,
        seen: |seen| seen.late_start && seen.fenced && seen.done && seen.second_term,
        bugs: &[Planted::WithdrawnByObject, Planted::ObjectIsProof, Planted::RolesWithoutVersion],
    },
    Case {
        size: Size::Quick,
        setup: Setup { name: "two pods", kind: Kind::Pods, accidents: NONE, ..PLAIN },
        states: 40_000,
        seen: |seen| seen.start && seen.done && seen.second_term,
        bugs: &[Planted::NextStartsTooEarly, Planted::StartedPodUnknown],
    },
    Case {
        size: Size::Middle,
        setup: Setup {
            name: "a term is in doubt",
            terms: 1,
            accidents: Accidents { unanswered: 1, doubts: 2, time: 1, ..NONE },
            ..PLAIN
        },
        states: 200_000,
        seen: |seen| seen.late_start && seen.fenced && seen.done,
        bugs: &[],
    },
    Case {
        size: Size::Middle,
        setup: Setup {
            name: "a term of two pods is in doubt",
            kind: Kind::Pods,
            terms: 1,
            accidents: Accidents { unanswered: 1, doubts: 2, time: 1, ..NONE },
            ..PLAIN
        },
        states: 200_000,
        seen: |seen| seen.late_start && seen.fenced && seen.done,
        bugs: &[Planted::StartNotFenced],
    },
    Case {
        size: Size::Middle,
        setup: Setup {
            name: "another process takes over",
            terms: 1,
            accidents: Accidents { unanswered: 1, authority: 1, ..NONE },
            ..PLAIN
        },
        states: 500_000,
        seen: |seen| seen.late_start && seen.fenced && seen.done,
        bugs: &[Planted::TakeoverNotFenced],
    },
    Case {
        size: Size::Large,
        setup: Setup {
            name: "two processes decide",
            is_orderly: false,
            terms: 1,
            slow: 2,
            accidents: Accidents { authority: 1, ..NONE },
            ..PLAIN
        },
        states: 2_000_000,
        seen: |seen| seen.start && seen.done && seen.rivals,
        bugs: &[Planted::StartFromCachedStatus, Planted::StatusEndNotFenced],
    },
    Case {
        size: Size::Middle,
        setup: Setup {
            name: "two clusters",
            kind: Kind::Workload(2),
            is_shared: true,
            slow: 2,
            accidents: NONE,
            ..PLAIN
        },
        states: 100_000,
        seen: |seen| seen.start && seen.done && seen.second_term && seen.rivals,
        bugs: &[Planted::StoppedWithoutAnswer],
    },
    Case {
        size: Size::Large,
        setup: Setup {
            name: "another process takes over, two terms",
            slow: 2,
            accidents: Accidents { authority: 1, ..NONE },
            ..PLAIN
        },
        states: 500_000,
        seen: |seen| seen.start && seen.done && seen.second_term,
        bugs: &[],
    },
    Case {
        size: Size::Large,
        setup: Setup {
            name: "another process takes over, two pods",
            kind: Kind::Pods,
            terms: 1,
            accidents: Accidents { authority: 1, ..NONE },
            ..PLAIN
        },
        states: 500_000,
        seen: |seen| seen.start && seen.done,
        bugs: &[],
    },
    Case {
        size: Size::Large,
        setup: Setup { name: "two pods, a late write", kind: Kind::Pods, ..PLAIN },
        states: 2_000_000,
        seen: |seen| seen.late_start && seen.fenced && seen.done && seen.second_term,
        bugs: &[],
    },
    Case {
        size: Size::Middle,
        setup: Setup {
            name: "two clusters, a late write",
            kind: Kind::Workload(2),
            is_shared: true,
            terms: 1,
            ..PLAIN
        },
        states: 100_000,
        seen: |seen| seen.late_start && seen.fenced && seen.done && seen.rivals,
        bugs: &[],
    },
];

/// Searches one setup and prints what it took.
fn report(setup: Setup, bug: Option<Planted>) -> Found {
    let began = Instant::now();
    let found = search(setup, bug, MOST);
    let planted = bug.map_or_else(String::new, |bug| format!("{bug:?} in: "));
    let verdict = match &found.broken {
        Some((rule, way)) => format!("{} steps: {rule}", way.len()),
        None => "no violation".to_owned(),
    };
    let (states, transitions, took) = (found.states, found.transitions, began.elapsed().as_secs_f64());
    let label = format!("{planted}{}", setup.name);
    let [statuses, objects] = found.seen.versions;
    println!(
        "{label:50} {states:>9} states, {transitions:>9} transitions, {} steps of one process, versions up to {statuses} and {objects}, \
         {took:5.1} s: {verdict}",
        found.steps
    );
    found
}

fn check(case: &Case, bug: Option<Planted>) -> Result<(), String> {
    let name = case.setup.name;
    let found = report(case.setup, bug);
    if let Some(bug) = bug {
        return found.broken.map(drop).ok_or(format!("{bug:?} was not found in: {name}"));
    }
    if let Some((rule, way)) = &found.broken {
        return Err(format!("{name}: {rule}\n  {}", way.join("\n  ")));
    }
    if !found.is_exhausted {
        return Err(format!("{name}: more than {MOST} states"));
    }
    if found.states < case.states || !(case.seen)(&found.seen) {
        return Err(format!("{name}: the setup is too tame: {} states, {:?}", found.states, found.seen));
    }
    Ok(())
}

#[test]
fn order_and_fence_hold_and_each_simpler_rule_is_found_to_break_them() {
    let cases = CASES.iter().filter(|case| is_selected(case.setup.name));
    let with_bugs = |case: &'static Case| {
        let whole = (case.size <= Size::of_run()).then_some(None);
        let bugs = case.bugs.iter().filter(|_| case.size.min(Size::Middle) <= Size::of_run());
        whole.into_iter().chain(bugs.map(|bug| Some(*bug))).map(move |bug| (case, bug))
    };
    let mut jobs: Vec<(&Case, Option<Planted>)> = cases.flat_map(with_bugs).collect();
    // The longest first.
    jobs.sort_by_key(|(case, bug)| (bug.is_some(), std::cmp::Reverse(case.states)));
    search_all(&jobs, |(case, bug)| check(case, *bug));
}

#[test]
fn every_planted_bug_is_searched() {
    for bug in Planted::ALL {
        assert!(CASES.iter().any(|case| case.bugs.contains(bug)), "{bug:?}");
    }
}
