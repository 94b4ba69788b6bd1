//! Unit tests of the readers of replies.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec;

use super::*;
use crate::check::ops;
use crate::op::{Attempt, Grant, Holder, Stage};

fn attempt() -> Attempt {
    Attempt(0xff)
}

fn text(text: &str) -> Value {
    Value::Text(text.as_bytes().to_vec())
}

/// An answer, preceded by TIME.
fn answer(parts: &[Value]) -> Value {
    Value::List([text("1795238400"), text("42")].into_iter().chain(parts.iter().cloned()).collect())
}

fn term() -> Stored {
    Stored { stage: Stage::Term, attempt: attempt(), number: 7, metadata: "pod:a".into() }
}

/// The reply to one acquire or confirm.
fn one(part: Value) -> Value {
    answer(&[text("votes"), part])
}

/// The reply to one seal or release.
fn end(part: Value) -> Value {
    answer(&[text("ends"), part])
}

fn list(parts: &[Value]) -> Value {
    Value::List(parts.to_vec())
}

fn votes_on(ops: &[&Op], parts: &[Value]) -> Result<Vec<Result<Answer, String>>, String> {
    let reply = read_votes(ops.iter().copied(), answer(parts)).map_err(|invalid| invalid.to_string())?;
    assert_eq!(reply.time, 1_795_238_400_000_042);
    let text = |no| match no {
        NoAnswer::Invalid(invalid) => invalid.to_string(),
        NoAnswer::Error => "an error".to_owned(),
    };
    Ok(reply.answer.into_iter().map(|answer| answer.map_err(text)).collect())
}

/// The answer to one request.
fn answer_on(op: &Op, reply: Value) -> Result<Answer, String> {
    let Value::List(parts) = &reply else { return Err(read_extend(1, reply).unwrap_err().to_string()) };
    if !matches!(op, Op::Extend { .. }) {
        return votes_on(&[op], &parts[2..]).and_then(|mut answers| answers.remove(0));
    }
    Ok(match read_extend(1, reply).map_err(|invalid| invalid.to_string())?.answer {
        Answer::Vote(exceptions) => {
            Answer::Vote(exceptions.into_iter().next().map_or(Vote::Extended, |(_, vote)| vote))
        }
        Answer::NotAdmitted => Answer::NotAdmitted,
        Answer::Late => Answer::Late,
    })
}

#[test]
fn answers_become_votes() {
    let [acquire, confirm, extend, seal, release] = ops::each();
    let value = term().to_string();
    for (op, reply, vote) in [
        (&acquire, one(Value::Int(1_795_238_400_000_043)), Vote::Granted(Grant::Numbered(1_795_238_400_000_043))),
        (&acquire, one(list(&[Value::Int(90), text(&value)])), Vote::Refused { ttl_left: Millis(90), by: term() }),
        (&confirm, one(Value::Int(0)), Vote::Confirmed { ttl_left: Millis::ZERO }),
        (&confirm, one(list(&[text(&value)])), Vote::Miss(Some(term()))),
        (&extend, answer(&[text("extended")]), Vote::Extended),
        (&extend, answer(&[text("extended"), Value::Int(1), Value::Nil]), Vote::Miss(None)),
        (&extend, answer(&[text("extended"), Value::Int(1), text(&value)]), Vote::Miss(Some(term()))),
        (&seal, end(Value::Int(5)), Vote::Sealed { ttl_left: Millis(5) }),
        (&seal, end(list(&[Value::Nil])), Vote::Miss(None)),
        (&release, end(Value::Int(2)), Vote::Released(2)),
    ] {
        assert_eq!(answer_on(op, reply), Ok(Answer::Vote(vote)), "{op:?}");
    }
}

#[test]
fn an_operation_that_was_not_executed_is_not_a_vote() {
    let [acquire, confirm, extend, seal, release] = ops::each();
    for op in [&acquire, &confirm, &extend] {
        assert_eq!(answer_on(op, answer(&[text("not_admitted")])), Ok(Answer::NotAdmitted));
    }
    assert_eq!(answer_on(&seal, end(text("not_admitted"))), Ok(Answer::NotAdmitted));
    assert_eq!(answer_on(&acquire, one(text("late"))), Ok(Answer::Late));
    assert_eq!(answer_on(&extend, answer(&[text("late")])), Ok(Answer::Late));
    for (op, reply) in [
        (&confirm, one(text("late"))),
        (&seal, end(text("late"))),
        (&release, end(text("late"))),
        (&release, end(text("not_admitted"))),
        (&release, answer(&[text("not_admitted")])),
        (&seal, answer(&[text("not_admitted")])),
    ] {
        let error = answer_on(op, reply).unwrap_err();
        assert!(error.contains("does not belong to this"), "{op:?}: {error}");
    }
}

#[test]
fn an_invalid_reply_is_not_a_vote() {
    let [acquire, confirm, extend, _, release] = ops::each();
    let read = |op: &Op, reply: Value| answer_on(op, reply).unwrap_err();
    let other = |op: &Op, parts: &[Value]| read(op, answer(parts));
    for (error, part) in [
        (read(&extend, Value::Other("OK".to_owned())), "instead of a list"),
        (read(&extend, Value::List(vec![])), "ends too early"),
        (read(&extend, list(&[text("x"), text("1")])), "`x` instead of a number"),
        (other(&extend, &[]), "ends too early"),
        (other(&extend, &[text("votes"), Value::Int(1)]), "`votes` does not belong"),
        (other(&extend, &[text("EXTENDED")]), "`EXTENDED` does not belong"),
        (other(&extend, &[text("extended"), text("not")]), "`not` instead of a number"),
        (other(&extend, &[text("extended"), Value::Int(1)]), "ends too early"),
        (other(&extend, &[text("extended"), Value::Int(1), Value::Int(7)]), "instead of a value"),
        (other(&extend, &[text("extended"), Value::Int(2), Value::Nil]), "lease 2 of 1"),
        (other(&extend, &[text("extended"), Value::Int(0), Value::Nil]), "lease 0 of 1"),
        (other(&extend, &[text("late"), Value::Int(1)]), "after its end"),
        (other(&acquire, &[text("extended")]), "`extended` does not belong"),
        (other(&acquire, &[text("votes")]), "ends too early"),
        (other(&acquire, &[text("votes"), Value::Int(1), Value::Int(2)]), "after its end"),
        (read(&confirm, one(list(&[text("what")]))), "something else writes under this key prefix"),
        (read(&release, end(Value::Int(-1))), "`-1` instead of a number"),
        (read(&acquire, one(Value::Int(9_007_199_254_740_992))), "not below 2^53"),
        (read(&acquire, one(Value::Nil)), "does not belong"),
        (read(&acquire, one(list(&[Value::Int(-1), text(&term().to_string())]))), "`-1` instead of a number"),
        (read(&acquire, one(list(&[Value::Int(1), Value::Nil]))), "instead of a TTL and a value"),
        (read(&acquire, one(list(&[Value::Int(1)]))), "ends too early"),
        (read(&confirm, one(Value::Other("1.0".to_owned()))), "does not belong"),
        (read(&confirm, one(list(&[Value::Text(vec![0xff])]))), "is not UTF-8"),
        (read(&confirm, one(list(&[Value::Int(1)]))), "instead of a value"),
        (read(&confirm, one(list(&[Value::Nil, Value::Nil]))), "after its end"),
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn markers_and_fences() {
    let marker = |value: Value| read_marker(answer(&[text("marker"), value]));
    assert_eq!(marker(text("3f:1:9c2b")).unwrap().answer, Some("3f:1:9c2b".parse().unwrap()));
    assert_eq!(marker(Value::Nil).unwrap().answer, None);
    assert!(marker(text("what")).unwrap_err().to_string().contains("marker `what` is neither"));
    let fence = |admitted, fence: &str| read_fence(answer(&[text("fence"), Value::Int(admitted), text(fence)]));
    let report = |allegiance, fence| Ok(FenceReport { allegiance, fence: Token(fence), clock: 1_795_238_400_000_042 });
    assert_eq!(fence(1, "1795238400000043"), report(Allegiance::Ours, 1_795_238_400_000_043));
    assert_eq!(fence(0, "0"), report(Allegiance::Nobody, 0));
    assert_eq!(fence(2, "7"), report(Allegiance::Others, 7));
    assert!(fence(3, "7").is_err(), "an unknown code");
    assert!(fence(0, "x").unwrap_err().to_string().contains("`x` instead of a number"));
}

#[test]
fn a_reply_to_many_extensions_names_the_exceptions() {
    let value = term().to_string();
    let read = |parts: &[Value]| read_extend(3, answer(parts)).map(|reply| reply.answer);
    assert_eq!(read(&[text("extended")]), Ok(Answer::Vote(vec![])));
    let two = [text("extended"), Value::Int(1), text(&value), Value::Int(3), Value::Nil];
    assert_eq!(read(&two), Ok(Answer::Vote(vec![(0, Vote::Miss(Some(term()))), (2, Vote::Miss(None))])));
    let foreign =
        [text("extended"), Value::Int(1), text("what"), Value::Int(2), Value::Int(0), Value::Int(3), Value::Nil];
    let votes = vec![(0, Vote::Unknown), (1, Vote::Unknown), (2, Vote::Miss(None))];
    assert_eq!(read(&foreign), Ok(Answer::Vote(votes)), "one foreign value makes one vote unknown");
    let disordered = [text("extended"), Value::Int(2), Value::Nil, Value::Int(2), Value::Nil];
    assert!(read(&disordered).unwrap_err().to_string().contains("lease 2 is out of order"));
}

#[test]
fn a_check_names_what_is_refused() {
    let read = |parts: &[Value]| read_check(answer(parts)).map(|reply| reply.answer);
    assert_eq!(read(&[text("checked")]), Ok(None));
    let refused = Some(("MGET".to_owned(), "ERR no".to_owned()));
    assert_eq!(read(&[text("refused"), text("MGET"), text("ERR no")]), Ok(refused));
    assert!(read(&[text("extended")]).is_err());
}

#[test]
fn a_reply_to_many_requests_has_one_answer_for_each() {
    let [acquire, confirm, _, seal, release] = ops::each();
    let read = votes_on(&[&acquire, &confirm], &[text("votes"), Value::Int(9), Value::Int(5)]);
    let votes = [Vote::Granted(Grant::Numbered(9)), Vote::Confirmed { ttl_left: Millis(5) }];
    assert_eq!(read, Ok(votes.map(|vote| Ok(Answer::Vote(vote))).to_vec()));
    let proposing =
        Op::Acquire { attempt: attempt(), proposal: Some(Token(9)), ttl: Millis(9), holder: Holder("a".into()) };
    let read = votes_on(&[&proposing, &proposing], &[text("votes"), Value::Int(9), Value::Int(10)]);
    let votes = [Vote::Granted(Grant::Proposed(Token(9))), Vote::Granted(Grant::Numbered(10))];
    assert_eq!(read, Ok(votes.map(|vote| Ok(Answer::Vote(vote))).to_vec()), "it was taken, and it was too low");
    let read = votes_on(&[&acquire, &acquire], &[text("votes"), text("late"), Value::Int(9)]);
    assert_eq!(read, Ok(vec![Ok(Answer::Late), Ok(Answer::Vote(Vote::Granted(Grant::Numbered(9))))]));
    let read = votes_on(&[&seal, &release], &[text("ends"), text("not_admitted"), Value::Int(1)]);
    assert_eq!(read, Ok(vec![Ok(Answer::NotAdmitted), Ok(Answer::Vote(Vote::Released(1)))]));
    let read = votes_on(&[&acquire, &confirm], &[text("not_admitted")]);
    assert_eq!(read, Ok(vec![Ok(Answer::NotAdmitted), Ok(Answer::NotAdmitted)]));

    let foreign = list(&[text("what")]);
    let parts = [text("votes"), foreign, Value::Error, Value::Int(-1), Value::Int(1)];
    let read = votes_on(&[&confirm, &acquire, &confirm, &confirm], &parts).unwrap();
    assert!(read[0].as_ref().unwrap_err().contains("something else writes"), "{read:?}");
    assert_eq!(read[1], Err("an error".to_owned()));
    assert!(read[2].as_ref().unwrap_err().contains("`-1` instead of a number"), "a key without a TTL: {read:?}");
    assert_eq!(read[3], Ok(Answer::Vote(Vote::Confirmed { ttl_left: Millis(1) })));
}

#[test]
fn a_read_key_is_shown_with_its_life() {
    let read = |parts: &[Value]| read_value(answer(parts)).map(|reply| reply.answer);
    assert_eq!(read(&[text("read")]), Ok(Ok(Answer::Vote(None))));
    assert_eq!(read(&[text("not_admitted")]), Ok(Ok(Answer::NotAdmitted)));
    let value = text(&term().to_string());
    assert_eq!(read(&[text("read"), value.clone(), Value::Int(9)]), Ok(Ok(Answer::Vote(Some((term(), Millis(9)))))));
    for foreign in
        [[text("what"), Value::Int(9)], [value.clone(), Value::Int(-1)], [Value::Text(vec![0xff]), Value::Int(9)]]
    {
        assert!(read(&[&[text("read")][..], &foreign].concat()).unwrap().is_err(), "{foreign:?}");
    }
    for parts in [&[text("read"), value][..], &[text("votes")][..]] {
        assert!(read(parts).is_err(), "{parts:?}");
    }
}

#[test]
fn a_reply_that_may_belong_to_another_call_is_refused_as_a_whole() {
    let [acquire, confirm, _, seal, release] = ops::each();
    let two = |parts: &[Value]| votes_on(&[&acquire, &confirm], parts).unwrap_err();
    for (error, part) in [
        (two(&[text("granted"), text("9")]), "`granted` does not belong"),
        (two(&[text("votes"), Value::Int(9)]), "ends too early"),
        (two(&[text("votes"), Value::Int(9), Value::Int(9), Value::Int(9)]), "after its end"),
        (two(&[text("votes"), Value::Int(9), text("late")]), "does not belong to this request"),
        (two(&[text("votes"), text("9"), Value::Int(9)]), "does not belong to this request"),
        (votes_on(&[&acquire], &[text("extended")]).unwrap_err(), "`extended` does not belong"),
        (votes_on(&[&seal, &release], &[text("not_admitted")]).unwrap_err(), "`not_admitted` does not belong"),
        (votes_on(&[&release], &[text("ends"), list(&[Value::Nil])]).unwrap_err(), "does not belong"),
        (votes_on(&[&release], &[text("votes"), Value::Int(1)]).unwrap_err(), "`votes` does not belong"),
        (votes_on(&[&acquire], &[text("ends"), Value::Int(1)]).unwrap_err(), "`ends` does not belong"),
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(
        read_votes([&acquire].into_iter(), Value::Other("OK".to_owned()))
            .unwrap_err()
            .to_string()
            .contains("instead of a list")
    );
}

#[test]
fn a_keep_is_answered_like_a_release() {
    let [.., release] = ops::each();
    let keep = Op::Keep { attempt: attempt(), ttl: Millis(900) };
    let read = votes_on(&[&keep, &release], &[text("ends"), Value::Int(1), Value::Int(0)]);
    assert_eq!(read, Ok([1, 0].map(|keys| Ok(Answer::Vote(Vote::Released(keys)))).to_vec()));
}
