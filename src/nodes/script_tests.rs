use super::*;
use redislease_core::op::{Attempt, Holder, Stage, Stages};

const HEX: &str = "000000000000000000000000000000ff";

fn attempt() -> Attempt {
    Attempt(0xff)
}

fn ops() -> [Op; 5] {
    [
        Op::Acquire { attempt: attempt(), ttl: Millis(30_000), holder: Holder("pod-a".into()) },
        Op::Confirm { attempt: attempt(), grant: Grant(6), token: Token(7) },
        Op::Extend { attempt: attempt(), token: Token(7), ttl: Millis(30_000) },
        Op::Seal { attempt: attempt() },
        Op::Release { attempt: attempt(), stages: Stages::Unpublished },
    ]
}

fn text(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

/// An answer with TIME before it.
fn answer(parts: &[Value]) -> Value {
    Value::Array([text("1795238400"), text("42")].into_iter().chain(parts.iter().cloned()).collect())
}

fn term() -> Stored {
    Stored { stage: Stage::Term, attempt: attempt(), number: 7, metadata: "pod:a".into() }
}

#[test]
fn answers_become_votes() {
    let [acquire, confirm, extend, seal, release] = ops();
    let value = term().to_string();
    for (op, parts, vote) in [
        (&acquire, vec![text("granted"), text("1795238400000043")], Vote::Granted(Grant(1_795_238_400_000_043))),
        (
            &acquire,
            vec![text("refused"), Value::Int(90), text(&value)],
            Vote::Refused { ttl_left: Millis(90), by: term() },
        ),
        (&confirm, vec![text("confirmed"), Value::Int(0)], Vote::Confirmed { ttl_left: Millis::ZERO }),
        (&confirm, vec![text("miss"), text(&value)], Vote::Miss(Some(term()))),
        (&extend, vec![text("extended")], Vote::Extended),
        (&extend, vec![text("miss"), Value::Nil], Vote::Miss(None)),
        (&seal, vec![text("sealed"), Value::Int(5)], Vote::Sealed { ttl_left: Millis(5) }),
        (&seal, vec![text("miss"), Value::Nil], Vote::Miss(None)),
        (&release, vec![text("released"), Value::Int(2)], Vote::Released(2)),
    ] {
        let read = read_vote(op, answer(&parts)).unwrap();
        assert_eq!(read, Reply { time: 1_795_238_400_000_042, answer: Answer::Vote(vote) }, "{op:?}");
    }
}

#[test]
fn nothing_done_is_no_vote() {
    for op in &ops()[..4] {
        assert_eq!(read_vote(op, answer(&[text("not_admitted")])).unwrap().answer, Answer::NotAdmitted);
    }
    let [acquire, confirm, extend, seal, release] = ops();
    for op in [&acquire, &extend] {
        assert_eq!(read_vote(op, answer(&[text("late")])).unwrap().answer, Answer::Late);
    }
    for op in [&confirm, &seal, &release] {
        let error = read_vote(op, answer(&[text("late")])).unwrap_err().to_string();
        assert!(error.contains("`late` to another question"), "{error}");
    }
}

#[test]
fn what_no_script_answers_is_no_vote() {
    let [acquire, confirm, extend, _, release] = ops();
    let other = |op: &Op, parts: &[Value]| read_vote(op, answer(parts)).unwrap_err().to_string();
    for (error, part) in [
        (read_vote(&extend, Value::Okay).unwrap_err().to_string(), "instead of a list"),
        (read_vote(&extend, Value::Array(vec![])).unwrap_err().to_string(), "ends too early"),
        (
            read_vote(&extend, Value::Array(vec![text("x"), text("1")])).unwrap_err().to_string(),
            "`x` instead of a number",
        ),
        (other(&extend, &[]), "ends too early"),
        (other(&extend, &[text("confirmed"), Value::Int(1)]), "`confirmed` to another question"),
        (other(&extend, &[text("EXTENDED")]), "`EXTENDED` to another question"),
        (other(&extend, &[text("extended"), text("not")]), "after its end"),
        (other(&extend, &[text("miss"), text("what")]), "something else writes under this key prefix"),
        (other(&release, &[text("not_admitted")]), "`not_admitted` to another question"),
        (other(&release, &[text("released"), text("-1")]), "`-1` instead of a number"),
        (other(&acquire, &[text("granted"), text("9007199254740992")]), "not below 2^53"),
        (other(&acquire, &[text("granted"), Value::Nil]), "nothing instead of a text"),
        (other(&acquire, &[text("refused"), Value::Int(-1), text(&term().to_string())]), "`-1` instead of a number"),
        (other(&acquire, &[text("refused"), Value::Int(1), Value::Nil]), "nothing instead of a value"),
        (other(&confirm, &[text("confirmed"), Value::Double(1.0)]), "instead of a text"),
        (other(&confirm, &[text("miss"), Value::BulkString(vec![0xff])]), "is not UTF-8"),
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn markers_and_fences() {
    let marker = |value: Value| read_marker(answer(&[text("marker"), value]));
    assert_eq!(marker(text("3f:1:9c2b")).unwrap().answer, Some("3f:1:9c2b".parse().unwrap()));
    assert_eq!(marker(Value::Nil).unwrap().answer, None);
    assert!(marker(text("what")).unwrap_err().to_string().contains("marker `what` is neither"));
    let fence = |admitted, fence: &str| read_fence(answer(&[text("fence"), Value::Int(admitted), text(fence)]));
    assert_eq!(fence(1, "1795238400000043").unwrap().answer, (Allegiance::Ours, Token(1_795_238_400_000_043)));
    assert_eq!(fence(0, "0").unwrap().answer, (Allegiance::Nobody, Token(0)));
    assert_eq!(fence(2, "7").unwrap().answer, (Allegiance::Others, Token(7)));
    assert!(fence(3, "7").is_err(), "an answer that nobody knows");
    assert!(fence(0, "x").unwrap_err().to_string().contains("`x` instead of a number"));
}

#[test]
fn a_call_names_its_script_by_hash_or_by_text() {
    let keyspace = Keyspace::new("rl");
    let locks = ["rl:lock:ns/a".to_owned(), "rl:lock:ns/b".to_owned()];
    let packed = |by| {
        let command = vote(by, &keyspace, &locks, "3f:1:9c2b", 77, &ops()[1]);
        command
            .args_iter()
            .map(|arg| match arg {
                redis::Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    let (by_hash, by_text) = (packed(By::Hash), packed(By::Text));
    assert_eq!((by_hash[0].as_str(), by_hash[1].len(), by_text[0].as_str()), ("EVALSHA", 40, "EVAL"));
    assert!(by_text[1].starts_with("#!lua\n"));
    let rest = ["4", "rl:marker", "rl:fence", "rl:lock:ns/a", "rl:lock:ns/b", "3f:1:9c2b", "77", HEX, "6", "7"];
    assert_eq!(by_hash[2..], rest);
    assert_eq!(by_text[2..], rest);
}

#[test]
fn every_script_begins_with_its_flags() {
    for script in Script::ALL {
        let first = script.source().lines().next().unwrap();
        assert!(["#!lua", "#!lua flags=allow-oom", "#!lua flags=no-writes"].contains(&first), "{script:?}: {first}");
    }
}
