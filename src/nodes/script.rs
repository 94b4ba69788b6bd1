//! The scripts: each call as a command, each reply as a value.
//!
//! `scripts/prelude.lua` documents the keys and arguments of the scripts. A reply that no script returns is an
//! [`InvalidReply`], which is not a vote: unknown text never counts as a success.

use std::fmt::{self, Write as _};
use std::sync::LazyLock;

use redis::{Cmd, RedisError, Value};
use redislease_core::marker::{Marker, RunId};
use redislease_core::op::{Attempt, Grant, Op, Stored, Token, Vote};
use redislease_core::seed::Allegiance;
use redislease_core::time::Millis;

use super::Keyspace;

macro_rules! scripts {
    ($($name:ident => $file:literal),* $(,)?) => {
        /// One of the scripts a node runs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is documented in its Lua file")]
        pub enum Script { $($name),* }

        impl Script {
            /// Every script.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            const fn body(self) -> &'static str {
                match self { $(Self::$name => include_str!(concat!("scripts/", $file, ".lua"))),* }
            }
        }
    };
}

scripts! {
    Acquire => "acquire",
    Confirm => "confirm",
    Extend => "extend",
    Seal => "seal",
    Release => "release",
    Observe => "observe",
    Admit => "admit",
    Fence => "fence",
    Check => "check",
    Votes => "many",
    Ends => "many",
}

struct Source {
    text: String,
    sha: String,
}

static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
    // The first line has the flags and must stay the first.
    let split = |script: &Script| script.body().split_once('\n').unwrap_or_default();
    let source = |script: &Script| {
        let prelude = include_str!("scripts/prelude.lua");
        let text = match script.parts() {
            [] => {
                let (shebang, body) = split(script);
                format!("{shebang}\n{prelude}\n{body}")
            }
            parts @ [(_, first), ..] => {
                let function = |(name, part): &(&str, Script)| {
                    format!("scripts.{name} = function(KEYS, ARGV)\n{}end\n", split(part).1)
                };
                let functions: String = parts.iter().map(function).collect();
                format!("{}\n{prelude}\nlocal scripts = {{}}\n{functions}\n{}", split(first).0, script.body())
            }
        };
        let sha = redis::Script::new(&text).get_hash().to_owned();
        Source { text, sha }
    };
    Script::ALL.iter().map(source).collect()
});

impl Script {
    /// The scripts that a script for many requests contains, each with its name there. They have the same flags.
    const fn parts(self) -> &'static [(&'static str, Self)] {
        match self {
            Self::Votes => &[("acquire", Self::Acquire), ("confirm", Self::Confirm)],
            Self::Ends => &[("seal", Self::Seal), ("release", Self::Release)],
            _ => &[],
        }
    }

    /// The text that is sent to the server.
    pub fn source(self) -> &'static str {
        &SOURCES[self as usize].text
    }

    /// The command that loads the script.
    pub fn load(self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(self.source());
        command
    }

    /// The call with its keys; the arguments follow.
    fn call<'a>(self, keyspace: &Keyspace, keys: impl ExactSizeIterator<Item = &'a String>) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&SOURCES[self as usize].sha).arg(keys.len() + 2).arg(keyspace.marker()).arg(keyspace.fence());
        for key in keys {
            command.arg(key);
        }
        command
    }
}

/// Requests a vote. `marker` must be on the node, and `deadline` is in milliseconds of its TIME; a release needs neither.
pub fn vote(keyspace: &Keyspace, locks: &[String], marker: &str, deadline: u64, op: &Op) -> Cmd {
    let script = match op {
        Op::Acquire { .. } => Script::Acquire,
        Op::Confirm { .. } => Script::Confirm,
        Op::Extend { attempt, token, ttl } => {
            let one = [Extension { keys: locks, attempt: *attempt, token: *token, ttl: *ttl }];
            return extend(keyspace, marker, deadline, &one);
        }
        Op::Seal { .. } => Script::Seal,
        Op::Release { .. } => Script::Release,
    };
    let mut command = script.call(keyspace, locks.iter());
    command.arg(marker).arg(deadline);
    add_arguments(&mut command, op);
    command
}

/// Adds the arguments of the op's script from the third on.
fn add_arguments(command: &mut Cmd, op: &Op) {
    command.arg(op.attempt().to_string());
    match op {
        Op::Acquire { ttl, holder, .. } => command.arg(ttl.0).arg(&*holder.0),
        Op::Confirm { grant, token, .. } => command.arg(grant.0).arg(token.0),
        Op::Extend { token, ttl, .. } => command.arg(token.0).arg(ttl.0),
        Op::Seal { .. } => command.arg("").arg(""),
        Op::Release { stages, .. } => command.arg(stages.letters()).arg(""),
    };
}

/// Whether an op ends a term or an attempt. A call has requests of one kind, because the kinds have different flags.
pub const fn is_end(op: &Op) -> bool {
    matches!(op, Op::Seal { .. } | Op::Release { .. })
}

/// Requests many votes in one call, each with its keys: either acquires and confirmations, or seals and releases.
/// `deadline` is the earliest of the requests.
pub fn votes<'a>(
    keyspace: &Keyspace,
    marker: &str,
    deadline: u64,
    requests: impl Iterator<Item = (&'a [String], &'a Op)> + Clone,
) -> Cmd {
    let mut rest = requests.clone();
    let script = match (rest.next(), rest.next()) {
        (Some((locks, op)), None) => return vote(keyspace, locks, marker, deadline, op),
        (Some((_, op)), _) if is_end(op) => Script::Ends,
        _ => Script::Votes,
    };
    let keys: Vec<&String> = requests.clone().flat_map(|(locks, _)| locks).collect();
    let mut command = script.call(keyspace, keys.into_iter());
    command.arg(marker).arg(deadline);
    for (locks, op) in requests {
        let name = match op {
            Op::Acquire { .. } => "acquire",
            Op::Confirm { .. } => "confirm",
            Op::Extend { .. } => "extend",
            Op::Seal { .. } => "seal",
            Op::Release { .. } => "release",
        };
        command.arg(name).arg(locks.len());
        add_arguments(&mut command, op);
    }
    command
}

/// One lease of an [`extend`].
#[derive(Clone, Copy, Debug)]
pub struct Extension<'a> {
    /// The lease's keys.
    pub keys: &'a [String],
    /// The attempt of its term.
    pub attempt: Attempt,
    /// The token of its term.
    pub token: Token,
    /// The TTL of the keys.
    pub ttl: Millis,
}

/// Extends many leases in one call.
pub fn extend(keyspace: &Keyspace, marker: &str, deadline: u64, leases: &[Extension<'_>]) -> Cmd {
    let keys: Vec<&String> = leases.iter().flat_map(|lease| lease.keys).collect();
    let mut command = Script::Extend.call(keyspace, keys.into_iter());
    command.arg(marker).arg(deadline);
    let mut term = String::new();
    for Extension { keys, attempt, token, ttl } in leases {
        term.clear();
        // Writing to a String cannot fail.
        let _ = write!(term, "t:{attempt}:{token}:");
        command.arg(keys.len()).arg(&term).arg(ttl.0);
    }
    command
}

/// Reads the marker, and writes a wait ticket if the marker does not name `run_id` or is `stepped`.
pub fn observe(keyspace: &Keyspace, run_id: &RunId, nonce: u128, stepped: Option<&Marker>) -> Cmd {
    let stepped = stepped.map(Marker::to_string).unwrap_or_default();
    let mut command = Script::Observe.call(keyspace, [].iter());
    command.arg(&**run_id).arg(format!("{nonce:032x}")).arg(stepped);
    command
}

/// Replaces `ticket` by `marker`, and raises the fence to at least `seed`.
pub fn admit(keyspace: &Keyspace, ticket: &Marker, marker: &Marker, seed: Token) -> Cmd {
    let mut command = Script::Admit.call(keyspace, [].iter());
    command.arg(ticket.to_string()).arg(marker.to_string()).arg(seed.0);
    command
}

/// Reads the fence, and which configuration the node votes for. `marker` is the expected one.
pub fn fence(keyspace: &Keyspace, marker: &Marker) -> Cmd {
    let mut command = Script::Fence.call(keyspace, [].iter());
    command.arg(marker.to_string()).arg(&**marker.run_id());
    command
}

/// Tries every command that the scripts use.
pub fn check(keyspace: &Keyspace) -> Cmd {
    Script::Check.call(keyspace, [keyspace.check().to_owned()].iter())
}

/// The answer of a script, with its time on the node's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<T> {
    /// TIME, in microseconds of Unix time.
    pub time: u64,
    /// The answer.
    pub answer: T,
}

/// A node's answer to a request for a vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T = Vote> {
    /// Its vote.
    Vote(T),
    /// The node has another marker than the expected one; nothing was executed.
    NotAdmitted,
    /// The deadline has passed; nothing was executed.
    Late,
}

/// The index, from 0, of a lease in an [`extend`] that was not extended, and its vote.
pub type Exception = (usize, Vote);

/// A reply that no script returns to such a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidReply(String);

impl fmt::Display for InvalidReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid reply to a script: {}", self.0)
    }
}

impl std::error::Error for InvalidReply {}

fn invalid(what: impl Into<String>) -> InvalidReply {
    InvalidReply(what.into())
}

/// Reads the reply to `op`.
///
/// # Errors
/// [`InvalidReply`] if no script returns such a reply to such a call.
pub fn read_vote(op: &Op, value: Value) -> Result<Reply<Answer>, InvalidReply> {
    let (time, parts) = Parts::of(value)?;
    Ok(Reply { time, answer: vote_in(op, parts)? })
}

/// Reads what follows TIME.
fn vote_in(op: &Op, mut parts: Parts) -> Result<Answer, InvalidReply> {
    if matches!(op, Op::Extend { .. }) {
        return Ok(match extended_in(1, parts)? {
            Answer::Vote(exceptions) => {
                Answer::Vote(exceptions.into_iter().next().map_or(Vote::Extended, |(_, vote)| vote))
            }
            Answer::NotAdmitted => Answer::NotAdmitted,
            Answer::Late => Answer::Late,
        });
    }
    let word = parts.text()?;
    let answer = match (op, word.as_str()) {
        (Op::Release { .. }, "released") => Answer::Vote(Vote::Released(parts.number()?)),
        (Op::Release { .. }, _) => return Err(unexpected(&word)),
        (_, "not_admitted") => Answer::NotAdmitted,
        (Op::Acquire { .. }, "late") => Answer::Late,
        (Op::Acquire { .. }, "granted") => Answer::Vote(Vote::Granted(Grant(parts.token()?.0))),
        (Op::Acquire { .. }, "refused") => Answer::Vote(Vote::Refused { ttl_left: parts.span()?, by: parts.stored()? }),
        (Op::Confirm { .. }, "confirmed") => Answer::Vote(Vote::Confirmed { ttl_left: parts.span()? }),
        (Op::Seal { .. }, "sealed") => Answer::Vote(Vote::Sealed { ttl_left: parts.span()? }),
        (Op::Confirm { .. } | Op::Seal { .. }, "miss") => Answer::Vote(Vote::Miss(parts.stored_or_none()?)),
        _ => return Err(unexpected(&word)),
    };
    parts.end(answer)
}

/// Why one of many requests in a call has no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// No script returns such a reply to such a request.
    Invalid(InvalidReply),
    /// The server returned an error.
    Error(RedisError),
}

/// Reads the reply to [`votes`] on `ops`. A request about a key with a foreign value has no answer.
///
/// # Errors
/// [`InvalidReply`] if no script returns such a reply to these requests: it may belong to another call.
pub fn read_votes(ops: &[&Op], value: Value) -> Result<Reply<Vec<Result<Answer, NoAnswer>>>, InvalidReply> {
    let (time, mut parts) = Parts::of(value)?;
    if let [op] = ops {
        return Ok(Reply { time, answer: vec![vote_in(op, parts).map_err(NoAnswer::Invalid)] });
    }
    parts.word("votes")?;
    let mut answers = Vec::with_capacity(ops.len());
    for op in ops {
        answers.push(match parts.next()? {
            Value::ServerError(error) => Err(NoAnswer::Error(error.into())),
            value => read_vote(op, value).map(|reply| reply.answer).map_err(NoAnswer::Invalid),
        });
    }
    Ok(Reply { time, answer: parts.end(answers)? })
}

/// Reads the reply to an [`extend`] of `count` leases. Leases without an exception were extended. The vote on a lease
/// whose key holds a value that RedisLease did not write is [`Vote::Unknown`].
///
/// # Errors
/// [`InvalidReply`] if that script does not return such a reply.
pub fn read_extend(count: usize, value: Value) -> Result<Reply<Answer<Vec<Exception>>>, InvalidReply> {
    let (time, parts) = Parts::of(value)?;
    Ok(Reply { time, answer: extended_in(count, parts)? })
}

/// Reads what follows TIME.
fn extended_in(count: usize, mut parts: Parts) -> Result<Answer<Vec<Exception>>, InvalidReply> {
    match parts.text()?.as_str() {
        "not_admitted" => return parts.end(Answer::NotAdmitted),
        "late" => return parts.end(Answer::Late),
        "extended" => {}
        word => return Err(unexpected(word)),
    }
    let mut exceptions: Vec<Exception> = Vec::new();
    while !parts.is_empty() {
        let place = parts.number()?;
        let found = usize::try_from(place).ok().filter(|place| (1..=count).contains(place));
        let place = found.ok_or_else(|| invalid(format!("lease {place} of {count}")))? - 1;
        if exceptions.last().is_some_and(|(last, _)| *last >= place) {
            return Err(invalid(format!("lease {} is out of order", place + 1)));
        }
        exceptions.push((place, parts.exception()?));
    }
    parts.end(Answer::Vote(exceptions))
}

/// Reads the reply of observe and admit: the marker on the node, if there is one.
///
/// # Errors
/// [`InvalidReply`] if these scripts do not return such a reply.
pub fn read_marker(value: Value) -> Result<Reply<Option<Marker>>, InvalidReply> {
    let (time, mut parts) = Parts::of(value)?;
    parts.word("marker")?;
    let marker = parts.text_or_none()?;
    let marker = marker.map(|text| text.parse::<Marker>()).transpose().map_err(|error| invalid(error.to_string()))?;
    Ok(Reply { time, answer: parts.end(marker)? })
}

/// Reads the reply of fence: whether the node votes for the configuration, and the counter.
///
/// # Errors
/// [`InvalidReply`] if that script does not return such a reply.
pub fn read_fence(value: Value) -> Result<Reply<(Allegiance, Token)>, InvalidReply> {
    let (time, mut parts) = Parts::of(value)?;
    parts.word("fence")?;
    let allegiance = match parts.number()? {
        0 => Allegiance::Nobody,
        1 => Allegiance::Ours,
        2 => Allegiance::Others,
        other => return Err(invalid(format!("{other} is not a valid voting code"))),
    };
    let fence = parts.token()?;
    Ok(Reply { time, answer: parts.end((allegiance, fence))? })
}

/// Reads the reply of check: the command that the server refused, and its error.
///
/// # Errors
/// [`InvalidReply`] if that script does not return such a reply.
pub fn read_check(value: Value) -> Result<Reply<Option<(String, String)>>, InvalidReply> {
    let (time, mut parts) = Parts::of(value)?;
    let refused = match parts.text()?.as_str() {
        "checked" => None,
        "refused" => Some((parts.text()?, parts.text()?)),
        word => return Err(unexpected(word)),
    };
    Ok(Reply { time, answer: parts.end(refused)? })
}

fn unexpected(word: &str) -> InvalidReply {
    invalid(format!("the word `{word}` does not belong to this script"))
}

/// The parts of a reply, in order.
struct Parts(std::vec::IntoIter<Value>);

impl Parts {
    /// Splits TIME from the parts that follow it.
    fn of(value: Value) -> Result<(u64, Self), InvalidReply> {
        let Value::Array(parts) = value else { return Err(invalid(format!("{value:?} instead of a list"))) };
        let mut parts = Self(parts.into_iter());
        let (seconds, micros) = (parts.number()?, parts.number()?);
        let time = seconds.checked_mul(1_000_000).and_then(|time| time.checked_add(micros));
        let time = time.ok_or_else(|| invalid(format!("TIME {seconds}.{micros:06}")))?;
        Ok((time, parts))
    }

    fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    fn next(&mut self) -> Result<Value, InvalidReply> {
        self.0.next().ok_or_else(|| invalid("it ends too early"))
    }

    fn text_or_none(&mut self) -> Result<Option<String>, InvalidReply> {
        match self.next()? {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => String::from_utf8(bytes)
                .map(Some)
                .map_err(|error| invalid(format!("{:?} is not UTF-8", error.into_bytes()))),
            Value::Int(number) => Ok(Some(number.to_string())),
            other => Err(invalid(format!("{other:?} instead of a text"))),
        }
    }

    fn text(&mut self) -> Result<String, InvalidReply> {
        self.text_or_none()?.ok_or_else(|| invalid("nothing instead of a text"))
    }

    fn word(&mut self, word: &str) -> Result<(), InvalidReply> {
        let text = self.text()?;
        if text == word { Ok(()) } else { Err(unexpected(&text)) }
    }

    /// Not negative: RedisLease writes no key without a TTL (-1).
    fn number(&mut self) -> Result<u64, InvalidReply> {
        let text = self.text()?;
        text.parse().map_err(|_| invalid(format!("`{text}` instead of a number")))
    }

    fn span(&mut self) -> Result<Millis, InvalidReply> {
        self.number().map(Millis)
    }

    fn token(&mut self) -> Result<Token, InvalidReply> {
        let number = self.number()?;
        if number < Token::END { Ok(Token(number)) } else { Err(invalid(format!("{number} is not below 2^53"))) }
    }

    fn stored_or_none(&mut self) -> Result<Option<Stored>, InvalidReply> {
        let text = self.text_or_none()?;
        text.map(|text| text.parse().map_err(|error| invalid(format!("`{text}` is {error}")))).transpose()
    }

    fn stored(&mut self) -> Result<Stored, InvalidReply> {
        self.stored_or_none()?.ok_or_else(|| invalid("nothing instead of a value"))
    }

    /// The vote on one lease that was not extended. A value that RedisLease did not write makes this vote unknown; the
    /// votes on the other leases count.
    fn exception(&mut self) -> Result<Vote, InvalidReply> {
        match self.next()? {
            Value::Nil => Ok(Vote::Miss(None)),
            Value::BulkString(bytes) => {
                let stored = str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok());
                Ok(stored.map_or(Vote::Unknown, |stored| Vote::Miss(Some(stored))))
            }
            Value::Int(0) => Ok(Vote::Unknown),
            other => Err(invalid(format!("{other:?} instead of a value"))),
        }
    }

    fn end<T>(mut self, answer: T) -> Result<T, InvalidReply> {
        match self.0.next() {
            None => Ok(answer),
            Some(more) => Err(invalid(format!("{more:?} after its end"))),
        }
    }
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
