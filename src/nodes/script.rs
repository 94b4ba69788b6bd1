//! The scripts: each call as a command, each answer as a value.
//!
//! `scripts/prelude.lua` says what keys and arguments a script takes. An answer that is none of ours is [`Garbled`],
//! which is no vote: an unknown text is never taken for a success.

use std::fmt;
use std::sync::LazyLock;

use redis::{Cmd, Value};
use redislease_core::marker::{Marker, RunId};
use redislease_core::op::{Grant, Op, Stored, Token, Vote};
use redislease_core::seed::Allegiance;
use redislease_core::time::Millis;

use super::Keyspace;

macro_rules! scripts {
    ($($name:ident => $file:literal),* $(,)?) => {
        /// One of the scripts a node runs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is explained in the file it is named after")]
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
}

struct Loaded {
    source: String,
    sha: String,
}

static LOADED: LazyLock<Vec<Loaded>> = LazyLock::new(|| {
    let load = |script: &Script| {
        // The first line carries the flags and must stay the first.
        let (shebang, body) = script.body().split_once('\n').unwrap_or_default();
        let source = format!("{shebang}\n{}\n{body}", include_str!("scripts/prelude.lua"));
        let sha = redis::Script::new(&source).get_hash().to_owned();
        Loaded { source, sha }
    };
    Script::ALL.iter().map(load).collect()
});

/// How a script is named to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By its hash: the server must know it.
    Hash,
    /// By its text, which makes the server know it.
    Text,
}

impl Script {
    fn loaded(self) -> &'static Loaded {
        &LOADED[self as usize]
    }

    /// The text that is sent to the server.
    pub fn source(self) -> &'static str {
        &self.loaded().source
    }

    fn call(self, by: By, keyspace: &Keyspace, locks: &[String], args: &[&str]) -> Cmd {
        let mut command = match by {
            By::Hash => redis::cmd("EVALSHA"),
            By::Text => redis::cmd("EVAL"),
        };
        command.arg(match by {
            By::Hash => self.loaded().sha.as_str(),
            By::Text => self.source(),
        });
        command.arg(locks.len() + 2).arg(keyspace.marker()).arg(keyspace.fence()).arg(locks).arg(args);
        command
    }
}

/// Asks for a vote. `marker` must stand on the node, and `deadline` is in milliseconds of its TIME; a release needs
/// neither.
pub fn vote(by: By, keyspace: &Keyspace, locks: &[String], marker: &str, deadline: u64, op: &Op) -> Cmd {
    let deadline = deadline.to_string();
    let attempt = op.attempt().to_string();
    let (script, fourth, fifth) = match op {
        Op::Acquire { ttl, holder, .. } => (Script::Acquire, ttl.0.to_string(), holder.to_string()),
        Op::Confirm { grant, token, .. } => (Script::Confirm, grant.0.to_string(), token.to_string()),
        Op::Extend { token, ttl, .. } => (Script::Extend, token.to_string(), ttl.0.to_string()),
        Op::Seal { .. } => (Script::Seal, String::new(), String::new()),
        Op::Release { stages, .. } => (Script::Release, stages.letters().to_owned(), String::new()),
    };
    script.call(by, keyspace, locks, &[marker, &deadline, &attempt, &fourth, &fifth])
}

/// Looks at the marker, and writes a ticket if it does not name `run_id` or is `stepped`.
pub fn observe(by: By, keyspace: &Keyspace, run_id: &RunId, nonce: u128, stepped: Option<&Marker>) -> Cmd {
    let stepped = stepped.map(Marker::to_string).unwrap_or_default();
    Script::Observe.call(by, keyspace, &[], &[run_id, &format!("{nonce:032x}"), &stepped])
}

/// Replaces `ticket` by `marker`, with `seed` as the least value of the fence.
pub fn admit(by: By, keyspace: &Keyspace, ticket: &Marker, marker: &Marker, seed: Token) -> Cmd {
    Script::Admit.call(by, keyspace, &[], &[&ticket.to_string(), &marker.to_string(), &seed.to_string()])
}

/// Reads the fence, and for whom the node votes. `marker` names it as one of ours.
pub fn fence(by: By, keyspace: &Keyspace, marker: &Marker) -> Cmd {
    Script::Fence.call(by, keyspace, &[], &[&marker.to_string(), marker.run_id()])
}

/// What a script answered, and when by the node's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<T> {
    /// TIME, in microseconds of Unix time.
    pub time: u64,
    /// What it says.
    pub answer: T,
}

/// What a node says when it is asked for a vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Its vote.
    Vote(Vote),
    /// Another marker stands than the one asked under; nothing was done.
    NotAdmitted,
    /// The deadline is past; nothing was done.
    Late,
}

/// An answer that is none of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Garbled(String);

impl fmt::Display for Garbled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the script answered what it cannot answer ({})", self.0)
    }
}

impl std::error::Error for Garbled {}

/// Reads the answer to `op`.
///
/// # Errors
/// [`Garbled`] when no script of ours gives such an answer to such a question.
pub fn read_vote(op: &Op, value: Value) -> Result<Reply<Answer>, Garbled> {
    let (time, mut parts) = Parts::of(value)?;
    let word = parts.text()?;
    let vote = match (op, word.as_str()) {
        (Op::Release { .. }, "released") => Vote::Released(parts.number()?),
        (Op::Release { .. }, _) => return Err(misplaced(&word)),
        (_, "not_admitted") => return parts.end(time, Answer::NotAdmitted),
        (Op::Acquire { .. } | Op::Extend { .. }, "late") => return parts.end(time, Answer::Late),
        (Op::Acquire { .. }, "granted") => Vote::Granted(Grant(parts.token()?.0)),
        (Op::Acquire { .. }, "refused") => Vote::Refused { ttl_left: parts.span()?, by: parts.stored()? },
        (Op::Confirm { .. }, "confirmed") => Vote::Confirmed { ttl_left: parts.span()? },
        (Op::Extend { .. }, "extended") => Vote::Extended,
        (Op::Seal { .. }, "sealed") => Vote::Sealed { ttl_left: parts.span()? },
        (Op::Confirm { .. } | Op::Extend { .. } | Op::Seal { .. }, "miss") => Vote::Miss(parts.stored_or_none()?),
        _ => return Err(misplaced(&word)),
    };
    parts.end(time, Answer::Vote(vote))
}

/// Reads the answer of observe and admit: the marker that stands, if one does.
///
/// # Errors
/// [`Garbled`] when it is no answer of theirs.
pub fn read_marker(value: Value) -> Result<Reply<Option<Marker>>, Garbled> {
    let (time, mut parts) = Parts::of(value)?;
    parts.word("marker")?;
    let marker = parts.text_or_none()?;
    let marker = marker.map(|text| text.parse::<Marker>()).transpose().map_err(|error| Garbled(error.to_string()))?;
    parts.end(time, marker)
}

/// Reads the answer of fence: for whom the node votes, and the counter.
///
/// # Errors
/// [`Garbled`] when it is no answer of its.
pub fn read_fence(value: Value) -> Result<Reply<(Allegiance, Token)>, Garbled> {
    let (time, mut parts) = Parts::of(value)?;
    parts.word("fence")?;
    let allegiance = match parts.number()? {
        0 => Allegiance::Nobody,
        1 => Allegiance::Ours,
        2 => Allegiance::Others,
        other => return Err(Garbled(format!("{other} says for nobody that a node votes for"))),
    };
    let fence = parts.token()?;
    parts.end(time, (allegiance, fence))
}

fn misplaced(word: &str) -> Garbled {
    Garbled(format!("`{word}` to another question"))
}

/// The parts of an answer, in order.
struct Parts(std::vec::IntoIter<Value>);

impl Parts {
    /// TIME, and what follows it.
    fn of(value: Value) -> Result<(u64, Self), Garbled> {
        let Value::Array(parts) = value else { return Err(Garbled(format!("{value:?} instead of a list"))) };
        let mut parts = Self(parts.into_iter());
        let (seconds, micros) = (parts.number()?, parts.number()?);
        let time = seconds.checked_mul(1_000_000).and_then(|time| time.checked_add(micros));
        let time = time.ok_or_else(|| Garbled(format!("TIME {seconds}.{micros:06}")))?;
        Ok((time, parts))
    }

    fn text_or_none(&mut self) -> Result<Option<String>, Garbled> {
        match self.0.next() {
            Some(Value::Nil) => Ok(None),
            Some(Value::BulkString(bytes)) => String::from_utf8(bytes)
                .map(Some)
                .map_err(|error| Garbled(format!("{:?} is not UTF-8", error.into_bytes()))),
            Some(Value::Int(number)) => Ok(Some(number.to_string())),
            Some(other) => Err(Garbled(format!("{other:?} instead of a text"))),
            None => Err(Garbled("it ends too early".to_owned())),
        }
    }

    fn text(&mut self) -> Result<String, Garbled> {
        self.text_or_none()?.ok_or_else(|| Garbled("nothing instead of a text".to_owned()))
    }

    fn word(&mut self, word: &str) -> Result<(), Garbled> {
        let text = self.text()?;
        if text == word { Ok(()) } else { Err(misplaced(&text)) }
    }

    /// Not negative: a key without an end (-1) is none of ours.
    fn number(&mut self) -> Result<u64, Garbled> {
        let text = self.text()?;
        text.parse().map_err(|_| Garbled(format!("`{text}` instead of a number")))
    }

    fn span(&mut self) -> Result<Millis, Garbled> {
        self.number().map(Millis)
    }

    fn token(&mut self) -> Result<Token, Garbled> {
        let number = self.number()?;
        if number < Token::END { Ok(Token(number)) } else { Err(Garbled(format!("{number} is not below 2^53"))) }
    }

    fn stored_or_none(&mut self) -> Result<Option<Stored>, Garbled> {
        let text = self.text_or_none()?;
        text.map(|text| text.parse().map_err(|error| Garbled(format!("`{text}` is {error}")))).transpose()
    }

    fn stored(&mut self) -> Result<Stored, Garbled> {
        self.stored_or_none()?.ok_or_else(|| Garbled("nothing instead of a value".to_owned()))
    }

    fn end<T>(mut self, time: u64, answer: T) -> Result<Reply<T>, Garbled> {
        match self.0.next() {
            None => Ok(Reply { time, answer }),
            Some(more) => Err(Garbled(format!("{more:?} after its end"))),
        }
    }
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
