use super::*;

const MIDDLE: Entropy = Entropy(u64::MAX / 2 + 1);

type Calls = Queue<&'static str, u32>;

fn job(key: &'static str, priority: Priority, payload: u32) -> Submission<&'static str, u32> {
    Submission { key, tenant: "n".into(), lane: None, priority, not_before: None, not_after: None, payload }
}

/// All jobs that are sent now.
fn sent(queue: &mut Calls, now: Time) -> Vec<&'static str> {
    let next = std::iter::from_fn(|| queue.next(now));
    next.map(|next| match next {
        Next::Call(key, _) => key,
        Next::Probe => "probe",
        Next::Expired(_) => "expired",
    })
    .collect()
}

fn done(queue: &mut Calls, now: Time, keys: &[&'static str]) {
    for key in keys {
        queue.done(now, key, Verdict::Done, MIDDLE);
    }
}

/// The job is sent at once, as the only one, and ends with this verdict.
fn call(queue: &mut Calls, now: Time, key: &'static str, priority: Priority, verdict: Verdict) {
    queue.submit(now, job(key, priority, 0));
    assert_eq!(sent(queue, now), [key]);
    queue.done(now, &key, verdict, MIDDLE);
}

#[test]
fn urgent_jobs_go_first_and_tenants_take_turns() {
    let mut queue = Calls::new(Limits::STANDARD);
    for (key, priority) in [("event", Priority::Events), ("publish", Priority::Publication), ("end", Priority::End)] {
        queue.submit(Time(0), job(key, priority, 0));
    }
    for key in ["a1", "a2", "a3"] {
        queue.submit(Time(0), Submission { tenant: "a".into(), ..job(key, Priority::Active, 0) });
    }
    queue.submit(Time(0), Submission { tenant: "b".into(), ..job("b1", Priority::Active, 0) });
    queue.submit(Time(0), Submission { tenant: "b".into(), ..job("b2", Priority::Standby, 0) });
    assert_eq!(sent(&mut queue, Time(0)), ["end", "a1", "b1", "publish", "a2", "a3", "b2", "event"]);
}

#[test]
fn a_newer_job_replaces_the_older_one_and_waits_for_the_one_under_way() {
    let mut queue = Calls::new(Limits::STANDARD);
    queue.submit(Time(0), job("s", Priority::Counts, 1));
    queue.submit(Time(0), job("s", Priority::End, 2));
    assert_eq!(queue.next(Time(0)), Some(Next::Call("s", 2)));
    queue.submit(Time(0), job("s", Priority::End, 3));
    assert_eq!(queue.next(Time(0)), None, "one of a key at a time");
    done(&mut queue, Time(1), &["s"]);
    assert_eq!(queue.next(Time(1)), Some(Next::Call("s", 3)));
    assert_eq!(queue.withdraw(&"s"), None, "it is in flight");
    done(&mut queue, Time(1), &["s"]);
    queue.submit(Time(1), job("s", Priority::End, 4));
    assert_eq!(queue.withdraw(&"s"), Some(4));
    assert_eq!((queue.next(Time(9)), queue.jobs.len(), queue.lanes.len()), (None, 0, 0));
    assert_eq!(queue.lengths(), [0; 6]);
}

#[test]
fn a_newer_job_has_its_own_priority_and_time() {
    let mut queue = Calls::new(Limits::STANDARD);
    for (key, priority) in [("less", Priority::End), ("later", Priority::Events), ("less", Priority::Counts)] {
        queue.submit(Time(0), job(key, priority, 0));
    }
    for at in [5, 9] {
        queue.submit(Time(0), Submission { not_before: Some(Time(at)), ..job("later", Priority::Events, 0) });
    }
    queue.submit(Time(0), job("other", Priority::Standby, 0));
    assert_eq!(sent(&mut queue, Time(0)), ["other", "less"]);
    assert_eq!(sent(&mut queue, Time(8)), [""; 0]);
    assert_eq!(sent(&mut queue, Time(9)), ["later"]);
}

#[test]
fn one_job_of_a_lane_at_a_time() {
    let mut queue = Calls::new(Limits::STANDARD);
    let lane: Arc<str> = "pod".into();
    for key in ["a", "b", "c", "d"] {
        queue.submit(Time(0), Submission { lane: Some(lane.clone()), ..job(key, Priority::Standby, 0) });
    }
    queue.withdraw(&"d");
    queue.submit(Time(0), job("other", Priority::Counts, 0));
    assert_eq!(sent(&mut queue, Time(0)), ["a", "other"]);
    let mut waiting = 0;
    queue.change_lane(&lane, |_| waiting += 1);
    assert_eq!(waiting, 2);
    queue.withdraw(&"b");
    done(&mut queue, Time(1), &["a"]);
    assert_eq!(sent(&mut queue, Time(1)), ["c"]);
    done(&mut queue, Time(1), &["c", "other"]);
    assert!(queue.lanes.is_empty());
}

#[test]
fn without_an_answer_everything_waits_for_one_probe() {
    let mut queue = Calls::new(Limits::STANDARD);
    queue.submit(Time(0), job("a", Priority::End, 1));
    queue.submit(Time(0), job("b", Priority::End, 2));
    assert_eq!(sent(&mut queue, Time(0)), ["a", "b"]);
    let terms = queue.done(Time(5000), &"a", Verdict::Unanswered, MIDDLE).unwrap();
    assert_eq!(queue.put_back(Time(5000), "a", terms, 1), None);
    queue.done(Time(5001), &"b", Verdict::Unanswered, MIDDLE);
    for key in ["c", "d"] {
        queue.submit(Time(5002), job(key, Priority::End, 0));
    }
    queue.want_probe();
    assert_eq!(sent(&mut queue, Time(5002)), [""; 0]);
    assert_eq!(queue.next_deadline(), Some(Time(5100)));
    assert_eq!(sent(&mut queue, Time(5100)), ["probe"]);
    assert_eq!(queue.next_deadline(), None, "the probe is in flight");
    queue.probe_done(Time(10_100), false, MIDDLE);
    assert_eq!(queue.next_deadline(), Some(Time(10_300)));
    assert_eq!(sent(&mut queue, Time(10_300)), ["probe"]);
    queue.probe_done(Time(10_301), true, MIDDLE);
    assert_eq!(sent(&mut queue, Time(10_301)), ["a", "c", "d"]);
}

#[test]
fn a_probe_is_sent_once_for_all_and_not_when_a_call_is_answered_anyway() {
    let mut queue = Calls::new(Limits::STANDARD);
    (0..100).for_each(|_| queue.want_probe());
    assert_eq!(sent(&mut queue, Time(0)), ["probe"]);
    queue.want_probe();
    assert_eq!(sent(&mut queue, Time(0)), [""; 0], "one at a time");
    queue.probe_done(Time(1), true, MIDDLE);
    assert_eq!(sent(&mut queue, Time(1)), [""; 0], "this answer came after both requests");
    for key in ["a", "b"] {
        queue.submit(Time(1), job(key, Priority::End, 0));
    }
    assert_eq!(sent(&mut queue, Time(1)), ["a", "b"]);
    queue.done(Time(1), &"a", Verdict::Unanswered, MIDDLE);
    queue.want_probe();
    done(&mut queue, Time(2), &["b"]);
    queue.submit(Time(2), job("c", Priority::End, 0));
    assert_eq!(sent(&mut queue, Time(2)), ["c"], "the answer to b is enough");
}

#[test]
fn a_key_that_was_refused_waits_unless_the_next_job_is_more_urgent() {
    let mut queue = Calls::new(Limits::STANDARD);
    let mut now = Time(0);
    for pause in [200, 400, 800, 1600, 2000, 2000] {
        call(&mut queue, now, "a", Priority::Standby, Verdict::Refused);
        queue.submit(now, job("a", Priority::Standby, 0));
        assert_eq!((queue.next(now), queue.next_deadline()), (None, Some(now + Millis(pause))));
        now += Millis(pause);
    }
    queue.submit(now, job("a", Priority::Standby, 0));
    queue.submit(Time(now.0 - 1), job("a", Priority::Active, 0));
    assert_eq!(sent(&mut queue, Time(now.0 - 1)), ["a"]);
    done(&mut queue, now, &["a"]);
    queue.submit(now, job("a", Priority::Counts, 0));
    assert_eq!(sent(&mut queue, now), ["a"], "the previous answer was not a refusal");
}

#[test]
fn a_conflict_is_a_refusal_from_the_second_in_a_row() {
    let mut queue = Calls::new(Limits::STANDARD);
    for _ in 0..2 {
        call(&mut queue, Time(0), "a", Priority::End, Verdict::Conflict);
    }
    queue.submit(Time(0), job("a", Priority::End, 0));
    assert_eq!((queue.next(Time(0)), queue.next_deadline()), (None, Some(Time(200))));
    let later = Time(200) + REFUSAL_KEPT;
    assert_eq!(sent(&mut queue, later), ["a"]);
    queue.done(later, &"a", Verdict::Conflict, MIDDLE);
    queue.submit(later, job("a", Priority::End, 0));
    assert_eq!(sent(&mut queue, later), ["a"], "it is not in a row with one of long ago");
    queue.unsent(&"a");
    done(&mut queue, later + REFUSAL_KEPT, &["other"]);
    assert!(queue.refusals.is_empty(), "nothing needs it any more");
}

/// Each pause makes the version older that the job names.
#[test]
fn a_job_that_another_writer_overtakes_is_repeated_at_once_a_few_times() {
    let mut queue = Calls::new(Limits::STANDARD);
    let mut now = Time(0);
    for pause in [200, 400, 800, 1600, 2000, 2000] {
        for _ in 0..4 {
            call(&mut queue, now, "a", Priority::Active, Verdict::Raced);
        }
        queue.submit(now, job("a", Priority::Active, 0));
        assert_eq!((queue.next(now), queue.next_deadline()), (None, Some(now + Millis(pause))));
        now += Millis(pause);
    }
    done(&mut queue, now, &["a"]);
}

#[test]
fn a_job_past_its_deadline_is_not_sent() {
    let mut queue = Calls::new(Limits::STANDARD);
    queue.submit(Time(0), Submission { not_after: Some(Time(50)), ..job("late", Priority::Publication, 7) });
    for number in 0..u32::try_from(Limits::STANDARD.calls).unwrap() {
        let key = Box::leak(number.to_string().into_boxed_str());
        queue.submit(Time(0), job(key, Priority::End, number));
    }
    assert_eq!(
        sent(&mut queue, Time(0)).len(),
        Limits::STANDARD.calls,
        "as many as may be in flight, urgent ones first"
    );
    assert_eq!(queue.next_deadline(), Some(Time(50)));
    assert_eq!(queue.next(Time(50)), Some(Next::Expired(7)));
    assert_eq!(queue.next_deadline(), None);
}

#[test]
fn the_rate_is_limited_after_a_burst() {
    let mut queue = Calls::new(Limits::STANDARD);
    let keys: Vec<&'static str> = (0..300).map(|number| &*Box::leak(format!("k{number}").into_boxed_str())).collect();
    for key in &keys {
        queue.submit(Time(1000), job(key, Priority::Active, 0));
    }
    let mut begun = 0;
    let mut at = Time(1000);
    while begun < keys.len() {
        let now = sent(&mut queue, at);
        done(&mut queue, at, &now);
        begun += now.len();
        if now.is_empty() {
            at = queue.next_deadline().unwrap();
        }
    }
    assert_eq!(at.since(Time(1000)), Millis(100), "100 at once, 200 at 2000 a second");
}

#[test]
fn an_unanswered_job_is_repeated_unless_a_newer_one_waits() {
    let mut queue = Calls::new(Limits::STANDARD);
    for newer in [false, true] {
        queue.submit(Time(0), job("s", Priority::Counts, 1));
        assert_eq!(queue.next(Time(0)), Some(Next::Call("s", 1)));
        if newer {
            queue.submit(Time(0), job("s", Priority::End, 2));
        }
        let terms = queue.done(Time(0), &"s", Verdict::Done, MIDDLE).unwrap();
        assert_eq!(queue.put_back(Time(0), "s", terms, 1), newer.then_some(1));
        assert_eq!(queue.next(Time(0)), Some(Next::Call("s", if newer { 2 } else { 1 })));
        done(&mut queue, Time(0), &["s"]);
        assert_eq!(queue.next(Time(0)), None);
    }
}

/// The API server answers every other call.
#[test]
fn an_object_whose_calls_are_never_answered_waits_longer_and_closes_the_gate_no_more() {
    let mut queue = Calls::new(Limits::STANDARD);
    let mut now = Time(0);
    for (closes, pause) in [(true, 0), (true, 200), (false, 400), (false, 800), (false, 1600), (false, 2000)] {
        call(&mut queue, now, "x", Priority::Active, Verdict::Unanswered);
        assert_eq!((queue.gate.is_open(), queue.failed(&"x").1), (!closes, !closes), "{pause}");
        if closes {
            now += Millis(100);
            assert_eq!(sent(&mut queue, now), ["probe"]);
            queue.probe_done(now, true, MIDDLE);
        }
        call(&mut queue, now, "other", Priority::Counts, Verdict::Done);
        let due = if closes && pause > 0 { now + Millis(pause - 100) } else { now + Millis(pause) };
        queue.submit(now, job("x", Priority::Active, 1));
        if due > now {
            assert_eq!(sent(&mut queue, Time(due.0 - 1)), [""; 0], "{pause}");
        }
        assert_eq!(sent(&mut queue, due), ["x"], "{pause}");
        queue.unsent(&"x");
        now = due;
    }
    call(&mut queue, now, "x", Priority::Active, Verdict::Done);
    assert_eq!(queue.failed(&"x"), (0, false));
}

/// A webhook of one tenant hangs on each write.
#[test]
fn calls_that_were_not_answered_before_leave_room_for_others() {
    let Limits { calls, unsure, unsure_of_tenant, .. } = Limits::STANDARD;
    let mut queue = Calls::new(Limits::STANDARD);
    let keys: Vec<&'static str> = (0..calls).map(|number| &*format!("{number:02}").leak()).collect();
    let submit = |queue: &mut Calls| keys.iter().for_each(|key| queue.submit(Time(0), job(key, Priority::Active, 0)));
    submit(&mut queue);
    assert_eq!(sent(&mut queue, Time(0)), keys);
    for key in &keys {
        queue.done(Time(0), key, Verdict::Unanswered, MIDDLE);
    }
    assert_eq!(sent(&mut queue, Time(100)), ["probe"]);
    queue.probe_done(Time(100), true, MIDDLE);
    submit(&mut queue);
    assert_eq!(sent(&mut queue, Time(100)), keys[..unsure_of_tenant]);
    queue.submit(Time(100), Submission { tenant: "other".into(), ..job("end", Priority::End, 0) });
    assert_eq!(sent(&mut queue, Time(100)), ["end"]);
    // One is answered: another one takes its place.
    done(&mut queue, Time(120), &keys[..1]);
    let due = queue.next_deadline().unwrap();
    assert!(due <= Time(150), "{due:?}");
    assert_eq!(sent(&mut queue, due), keys[unsure_of_tenant..=unsure_of_tenant]);
    // Other tenants have their share of such calls.
    for tenant in ["a", "b", "c"] {
        for number in 0..unsure_of_tenant {
            let key: &'static str = format!("{tenant}{number}").leak();
            queue.refusals.insert(key, Refusal { unanswered: Some((0, false)), ..Refusal::of(Priority::Active, due) });
            queue.submit(due, Submission { tenant: tenant.into(), ..job(key, Priority::Active, 0) });
        }
    }
    assert_eq!(sent(&mut queue, due).len(), unsure - unsure_of_tenant);
    // What has waited for a place for minutes is still a repetition.
    done(&mut queue, due + Millis(200_000), &["end"]);
    assert!(keys[1..].iter().all(|key| queue.was_unanswered(key)));
    queue.done(due + Millis(200_000), &keys[1], Verdict::Unanswered, MIDDLE);
    assert_eq!(queue.failed(&keys[1]).0, 1);
    let mut late = job("late", Priority::Events, 0);
    late.not_before = Some(due + Millis(230_000));
    queue.submit(due, late);
    queue.submit(due, job("soon", Priority::Events, 0));
    queue.keep_only(Priority::Events, due + Millis(203_000));
    assert!(queue.delayed.first().is_none() && queue.has(Priority::Events));
    queue.withdraw(&"soon");
    assert!(!queue.has(Priority::Events), "nobody waits for an event that is not sent in time");
}

/// A webhook of a tenant with many leases hangs, and nothing has shown it yet.
#[test]
fn a_tenant_that_holds_all_places_delays_no_urgent_call_of_another_one() {
    let Limits { calls, spare, spare_of_tenant, .. } = Limits::STANDARD;
    let mut queue = Calls::new(Limits::STANDARD);
    let submit = |queue: &mut Calls, tenant: &str, priority| {
        for number in 0..2 * calls {
            let key: &'static str = format!("{tenant}{number:02}{priority:?}").leak();
            queue.submit(Time(0), Submission { tenant: tenant.into(), ..job(key, priority, 0) });
        }
    };
    submit(&mut queue, "a", Priority::Active);
    assert_eq!(sent(&mut queue, Time(0)).len(), calls, "it is alone, and has all of them");
    submit(&mut queue, "b", Priority::Standby);
    assert_eq!((queue.next(Time(0)), queue.next_deadline()), (None, None), "they are not urgent");
    submit(&mut queue, "b", Priority::Active);
    let of_b = sent(&mut queue, Time(0));
    assert_eq!(of_b, ["b00Active", "b01Active"]);
    assert_eq!(of_b.len(), spare_of_tenant);
    assert_eq!(queue.next_deadline(), None);
    done(&mut queue, Time(1), &of_b);
    assert_eq!(sent(&mut queue, Time(1)), ["b02Active", "b03Active"]);
    // Several tenants with such a webhook.
    for tenant in ["c", "d", "e", "f"] {
        submit(&mut queue, tenant, Priority::Active);
    }
    assert_eq!(sent(&mut queue, Time(1)).len(), spare - spare_of_tenant);
}

/// Its answer shows that reads work: a server whose disk is full refuses every write.
#[test]
fn an_answer_to_the_probe_alone_blames_no_object() {
    let mut queue = Calls::new(Limits::STANDARD);
    let mut now = Time(0);
    for _ in 0..6 {
        queue.submit(now, job("x", Priority::Active, 1));
        now += Millis(2000);
        assert_eq!(sent(&mut queue, now), ["x"]);
        queue.done(now, &"x", Verdict::Unanswered, MIDDLE);
        now += Millis(100);
        assert_eq!(sent(&mut queue, now), ["probe"]);
        queue.probe_done(now, true, MIDDLE);
    }
    for pause in [15_000, 15_000] {
        call(&mut queue, now, "other", Priority::Active, Verdict::Done);
        now += Millis(pause);
        call(&mut queue, now, "x", Priority::Active, Verdict::Unanswered);
        assert!(queue.gate.is_open(), "it is still the reason when it is read again");
    }
}

#[test]
fn a_call_that_panicked_says_nothing_about_the_api_server() {
    let mut queue = Calls::new(Limits::STANDARD);
    for key in ["a", "b"] {
        queue.submit(Time(0), job(key, Priority::End, 0));
    }
    assert_eq!(sent(&mut queue, Time(0)), ["a", "b"]);
    queue.done(Time(0), &"a", Verdict::Unanswered, MIDDLE);
    queue.submit(Time(0), job("c", Priority::End, 0));
    queue.done(Time(0), &"b", Verdict::Panicked, MIDDLE);
    assert_eq!(sent(&mut queue, Time(0)), [""; 0], "the gate stays closed");
    queue.want_probe();
    assert_eq!(sent(&mut queue, Time(100)), ["probe"], "the request for a probe is kept");
    queue.probe_done(Time(100), true, MIDDLE);
    queue.submit(Time(100), job("b", Priority::End, 0));
    assert_eq!(sent(&mut queue, Time(100)), ["c"], "b waits as after a refusal");
    assert_eq!(sent(&mut queue, Time(200)), ["b"]);
}

#[test]
fn a_job_that_is_not_sent_after_all_says_nothing_about_the_api_server() {
    let mut queue = Calls::new(Limits { calls: 1, spare: 0, ..Limits::STANDARD });
    queue.done(Time(0), &"x", Verdict::Unanswered, MIDDLE);
    queue.submit(Time(0), Submission { lane: Some("pod".into()), ..job("a", Priority::Active, 1) });
    assert_eq!(queue.next(Time(0)), None, "the gate is closed");
    queue.probe_done(Time(100), true, MIDDLE);
    queue.submit(Time(100), Submission { lane: Some("pod".into()), ..job("b", Priority::Active, 2) });
    assert_eq!(queue.next(Time(100)), Some(Next::Call("a", 1)));
    assert_eq!(queue.next(Time(100)), None, "one of a lane, and one in all");
    queue.unsent(&"a");
    assert_eq!(queue.next(Time(100)), Some(Next::Call("b", 2)));
    queue.unsent(&"b");
    // Jobs that are not sent use up none of the rate.
    for round in 0..10_000 {
        queue.submit(Time(100), job("c", Priority::Active, round));
        assert_eq!(queue.next(Time(100)), Some(Next::Call("c", round)));
        queue.unsent(&"c");
    }
}
