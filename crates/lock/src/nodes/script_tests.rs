use super::*;
use redislease_core::check::ops;

const HEX: &str = "000000000000000000000000000000ff";

fn attempt() -> Attempt {
    Attempt(0xff)
}

fn words(command: &Cmd) -> Vec<String> {
    let word = |arg| match arg {
        redis::Arg::Simple(bytes) => String::from_utf8(<[u8]>::to_vec(bytes)).unwrap(),
        other => panic!("{other:?}"),
    };
    command.args_iter().map(word).collect()
}

/// The call with these requests.
fn call<'a>(requests: impl IntoIterator<Item = (&'a [String], &'a Op), IntoIter: Clone>) -> Vec<String> {
    words(&votes(&Keyspace::new("rl"), "3f:1:9c2b", 77, requests.into_iter()))
}

/// The keys of a lease of two locks and of a lease of one.
fn keys() -> ([String; 2], [String; 1]) {
    (["rl:a".to_owned(), "rl:b".to_owned()], ["rl:c".to_owned()])
}

#[test]
fn a_call_names_its_script_by_hash() {
    let call = call([(&keys().0[..], &ops::each()[1])]);
    assert_eq!(call[..2], ["EVALSHA", redis::Script::new(Script::Votes.source()).get_hash()]);
    let (pending, term) = (format!("p:{HEX}:6:"), format!("t:{HEX}:7:"));
    assert_eq!(call[2..7], ["4", "rl:marker", "rl:fence", "rl:a", "rl:b"]);
    assert_eq!(call[7..], ["3f:1:9c2b", "77", "0", "7", "2", "0", "", &pending, &term]);
    assert_eq!(words(&Script::Votes.load()), ["SCRIPT", "LOAD", Script::Votes.source()]);
}

#[test]
fn many_extensions_are_one_call() {
    let (two, one) = keys();
    let of = |keys, token, ttl| Extension { keys, attempt: attempt(), token: Token(token), ttl: Millis(ttl) };
    let leases = [of(&two, 7, 30_000), of(&one, 8, 5000), of(&one, 7, 5000)];
    let call = words(&extend(&Keyspace::new("rl"), "3f:1:9c2b", 77, leases.into_iter()));
    let term = |token| format!("t:{HEX}:{token}:");
    let (first, second) = (term(7), term(8));
    let rest = ["6", "rl:marker", "rl:fence", "rl:a", "rl:b", "rl:c", "rl:c", "3f:1:9c2b", "77"];
    assert_eq!(call[2..11], rest);
    assert_eq!(call[11..], ["2", "30000", &first, "1", "5000", &second, &first], "only what changes is repeated");
}

#[test]
fn every_script_begins_with_its_flags() {
    for script in Script::ALL {
        let first = script.source().lines().next().unwrap();
        assert!(["#!lua", "#!lua flags=allow-oom", "#!lua flags=no-writes"].contains(&first), "{script:?}: {first}");
    }
}

#[test]
fn a_keep_is_an_end_with_its_ttl() {
    let (_, one) = keys();
    let keep = |ttl| Op::Keep { attempt: attempt(), ttl: Millis(ttl) };
    let [.., release] = ops::each();
    let call = call([&keep(900), &keep(0), &release].map(|op| (&one[..], op)));
    let id = format!(":{HEX}:");
    assert_eq!(call[call.len() - 9..], ["1", "900", &id, "1", "1", &id, "1", "pt", &id], "a TTL of zero is an error");
}

#[test]
fn many_requests_of_one_kind_are_one_call() {
    let (two, one) = keys();
    let [acquire, confirm, _, seal, release] = ops::each();
    let keys = ["5", "rl:marker", "rl:fence", "rl:a", "rl:b", "rl:c", "3f:1:9c2b"];
    let sent = call([(&two[..], &acquire), (&one[..], &confirm)]);
    assert_eq!(sent[1], redis::Script::new(Script::Votes.source()).get_hash());
    assert_eq!(sent[2..9], keys);
    let (grants, pending, term) = (format!("{HEX}:0:"), format!("p:{HEX}:6:"), format!("t:{HEX}:7:"));
    assert_eq!(sent[9..], ["77", "1", "7", "2", "30000", "pod-a", &grants, "1", "0", "", &pending, &term]);
    let sent = call([(&two[..], &seal), (&one[..], &release)]);
    assert_eq!(sent[1], redis::Script::new(Script::Ends.source()).get_hash());
    assert_eq!(sent[2..9], keys);
    let owner = format!(":{HEX}:");
    assert_eq!(sent[9..], ["2", "seal", &owner, "1", "pt", &owner]);
}

#[test]
fn a_call_repeats_only_what_changes() {
    let (_, one) = keys();
    let sent = |ops: &[Op], from: usize| call(ops.iter().map(|op| (&one[..], op))).split_off(5 + ops.len() + from);
    let acquire = |ttl, holder| ops::acquire(0xff, Millis(ttl), holder);
    let confirm = |token| ops::confirm(0xff, 6, token);
    let (grants, pending) = (format!("{HEX}:0:"), format!("p:{HEX}:6:"));
    let term = |token| format!("t:{HEX}:{token}:");
    let (eight, seven) = (term(8), term(7));
    // The acquires, the fence at the end if it is 0 now, and the requests.
    let votes = sent(&[confirm(8), acquire(5000, "a"), acquire(5000, "a"), confirm(7), acquire(5000, "b")], 2);
    let rest =
        ["3", "11", &pending, &eight, "1", "5000", "a", &grants, &grants, &pending, &seven, "1", "5000", "b", &grants];
    assert_eq!(votes, rest);
    let [.., seal, release] = ops::each();
    let owner = format!(":{HEX}:");
    let ends = sent(&[release.clone(), release.clone(), seal, release], 1);
    assert_eq!(ends, ["1", "pt", &owner, &owner, "1", "seal", &owner, "1", "pt", &owner]);
}

#[test]
fn errors_in_a_reply_are_kept_apart() {
    let raw = redis::parse_redis_value(b"*4\r\n:1\r\n-OOM no\r\n*2\r\n$2\r\nab\r\n$-1\r\n+PONG\r\n").unwrap();
    let mut errors = Vec::new();
    let inner = Value::List(vec![Value::Text(b"ab".to_vec()), Value::Nil]);
    let other = Value::Other(format!("{:?}", redis::Value::SimpleString("PONG".to_owned())));
    assert_eq!(value(raw, &mut errors), Value::List(vec![Value::Int(1), Value::Error, inner, other]));
    assert_eq!(errors.iter().map(RedisError::code).collect::<Vec<_>>(), [Some("OOM")]);
}
