//! Reads the replies of the scripts.
//!
//! A reply that no script returns is an [`InvalidReply`], which is not a vote: unknown text never counts as a success.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::{self, Vec};
use core::fmt;

use crate::marker::Marker;
use crate::op::{Grant, Op, Stored, Token, Vote};
use crate::seed::{Allegiance, FenceReport};
use crate::time::Millis;

/// A value in a reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Nil,
    /// A number.
    Int(i64),
    /// A text.
    Text(Vec<u8>),
    /// Values, in order.
    List(Vec<Self>),
    /// An error in the place of the answer to one request.
    Error,
    /// A value that no script returns, as text.
    Other(String),
}

/// The answer of a script, with its time on the node's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<T> {
    /// TIME, in microseconds of Unix time.
    pub time: u64,
    /// What follows TIME in the reply.
    pub answer: T,
}

/// A node's answer to a request for a vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T = Vote> {
    /// The node has executed the request.
    Vote(T),
    /// The node has another marker than the expected one; nothing was executed.
    NotAdmitted,
    /// The deadline has passed; nothing was executed.
    Late,
}

/// The index, from 0, of a lease in a call for extensions that was not extended, and its vote.
pub type Exception = (usize, Vote);

/// The value of a key and its life, if there is one.
pub type Found = Option<(Stored, Millis)>;

/// A reply that no script returns to such a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidReply(String);

impl InvalidReply {
    pub(super) fn foreign_value() -> Self {
        invalid("a key holds a value that RedisLease did not write; choose another key prefix")
    }
}

impl fmt::Display for InvalidReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid reply to a script: {}", self.0)
    }
}

impl core::error::Error for InvalidReply {}

fn invalid(what: impl Into<String>) -> InvalidReply {
    InvalidReply(what.into())
}

/// Why one of many requests in a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The answer belongs to the request, but is not a vote: a key has a value or TTL that RedisLease did not write, or the
    /// counter is at its end.
    Invalid(InvalidReply),
    /// The server returned an error.
    Error,
}

/// Reads the reply to a call for votes on `ops`. A request about a key with a foreign value has no answer.
///
/// # Errors
/// [`InvalidReply`] if no script returns such a reply to these requests: it may belong to another call.
pub fn read_votes<'a>(
    ops: impl ExactSizeIterator<Item = &'a Op> + Clone,
    value: Value,
) -> Result<Reply<Vec<Result<Answer, NoAnswer>>>, InvalidReply> {
    let (time, mut parts) = Parts::of(value)?;
    let word = parts.text()?;
    let mut answers = Vec::with_capacity(ops.len());
    let ends = ops.clone().any(Op::is_end);
    let answered = if ends { "ends" } else { "votes" };
    match word.as_str() {
        word if word == answered => {
            for op in ops {
                answers.push(answer_to(op, parts.next()?)?);
            }
        }
        // A release needs no marker.
        "not_admitted" if !ends => {
            answers.extend(ops.map(|_| Ok(Answer::NotAdmitted)));
        }
        _ => return Err(unexpected(&word)),
    }
    Ok(Reply { time, answer: parts.end(answers)? })
}

/// Reads the answer to one request. An error is one of the call.
fn answer_to(op: &Op, value: Value) -> Result<Result<Answer, NoAnswer>, InvalidReply> {
    let vote = match (op, value) {
        (_, Value::Error) => return Ok(Err(NoAnswer::Error)),
        (Op::Acquire { proposal, .. }, Value::Int(number)) => count(number).and_then(token).map(|number| {
            // A node that did not take the proposal has a greater counter.
            let taken = *proposal == Some(number);
            Vote::Granted(if taken { Grant::Proposed(number) } else { Grant::Numbered(number.0) })
        }),
        (Op::Confirm { .. }, Value::Int(left)) => count(left).map(|left| Vote::Confirmed { ttl_left: Millis(left) }),
        (Op::Seal { .. }, Value::Int(left)) => count(left).map(|left| Vote::Sealed { ttl_left: Millis(left) }),
        (Op::Release { .. } | Op::Keep { .. }, Value::Int(keys)) => count(keys).map(Vote::Released),
        (Op::Acquire { .. }, Value::List(parts)) => {
            let mut parts = Parts(parts.into_iter());
            let (left, by) = (parts.next()?, parts.next()?);
            parts.end(())?;
            match (left, by) {
                (Value::Int(left), by @ Value::Text(_)) => count(left).and_then(|left| {
                    let by = stored(by)?.ok_or_else(|| invalid("nothing instead of a value"))?;
                    Ok(Vote::Refused { ttl_left: Millis(left), by })
                }),
                (left, by) => return Err(invalid(format!("{left:?}, {by:?} instead of a TTL and a value"))),
            }
        }
        (Op::Confirm { .. } | Op::Seal { .. }, Value::List(parts)) => {
            let mut parts = Parts(parts.into_iter());
            let value = parts.next()?;
            parts.end(())?;
            if !matches!(value, Value::Nil | Value::Text(_)) {
                return Err(invalid(format!("{value:?} instead of a value")));
            }
            stored(value).map(Vote::Miss)
        }
        (Op::Acquire { .. }, Value::Text(word)) if word == b"late" => return Ok(Ok(Answer::Late)),
        (Op::Seal { .. }, Value::Text(word)) if word == b"not_admitted" => return Ok(Ok(Answer::NotAdmitted)),
        (_, other) => return Err(invalid(format!("{other:?} does not belong to this request"))),
    };
    Ok(vote.map(Answer::Vote).map_err(NoAnswer::Invalid))
}

/// Not negative: RedisLease writes no key without a TTL (-1).
fn count(number: i64) -> Result<u64, InvalidReply> {
    u64::try_from(number).map_err(|_| invalid(format!("`{number}` instead of a number that is not negative")))
}

fn token(number: u64) -> Result<Token, InvalidReply> {
    if number < Token::END { Ok(Token(number)) } else { Err(invalid(format!("{number} is not below 2^53"))) }
}

/// The value of a key; nil if it is free.
fn stored(value: Value) -> Result<Option<Stored>, InvalidReply> {
    let Value::Text(bytes) = value else { return Ok(None) };
    let text = core::str::from_utf8(&bytes).map_err(|_| invalid(format!("{bytes:?} is not UTF-8")))?;
    text.parse().map(Some).map_err(|error| invalid(format!("`{text}` is {error}")))
}

/// Reads the reply to a call that extends `count` leases. Leases without an exception were extended. The vote on a lease
/// whose key holds a value that RedisLease did not write is [`Vote::Unknown`].
///
/// # Errors
/// [`InvalidReply`] if that script does not return such a reply.
pub fn read_extend(count: usize, value: Value) -> Result<Reply<Answer<Vec<Exception>>>, InvalidReply> {
    let (time, mut parts) = Parts::of(value)?;
    match parts.text()?.as_str() {
        "not_admitted" => return Ok(Reply { time, answer: parts.end(Answer::NotAdmitted)? }),
        "late" => return Ok(Reply { time, answer: parts.end(Answer::Late)? }),
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
    Ok(Reply { time, answer: parts.end(Answer::Vote(exceptions))? })
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
pub fn read_fence(value: Value) -> Result<FenceReport, InvalidReply> {
    let (clock, mut parts) = Parts::of(value)?;
    parts.word("fence")?;
    let allegiance = match parts.number()? {
        0 => Allegiance::Nobody,
        1 => Allegiance::Ours,
        2 => Allegiance::Others,
        other => return Err(invalid(format!("{other} is not a valid voting code"))),
    };
    let fence = token(parts.number()?)?;
    parts.end(FenceReport { allegiance, fence, clock })
}

/// Reads the reply of read: the value of the key and its life, if there is one. The inner error says that RedisLease did not write the
/// value.
///
/// # Errors
/// [`InvalidReply`] if that script does not return such a reply.
pub fn read_value(value: Value) -> Result<Reply<Result<Answer<Found>, InvalidReply>>, InvalidReply> {
    let (time, mut parts) = Parts::of(value)?;
    let answer = match parts.text()?.as_str() {
        "not_admitted" => Ok(Answer::NotAdmitted),
        "read" if parts.is_empty() => Ok(Answer::Vote(None)),
        "read" => {
            if parts.0.len() < 2 {
                return Err(invalid("it ends too early"));
            }
            let (text, life) = (parts.text(), parts.number());
            let parse = |text: String| text.parse().map_err(|error| invalid(format!("`{text}` is {error}")));
            text.and_then(parse).and_then(|stored| Ok(Answer::Vote(Some((stored, Millis(life?))))))
        }
        word => return Err(unexpected(word)),
    };
    Ok(Reply { time, answer: parts.end(answer)? })
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
struct Parts(vec::IntoIter<Value>);

impl Parts {
    /// Splits TIME from the parts that follow it.
    fn of(value: Value) -> Result<(u64, Self), InvalidReply> {
        let Value::List(parts) = value else { return Err(invalid(format!("{value:?} instead of a list"))) };
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
            Value::Text(bytes) => String::from_utf8(bytes)
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

    /// The vote on one lease that was not extended. A value that RedisLease did not write makes this vote unknown; the
    /// votes on the other leases count.
    fn exception(&mut self) -> Result<Vote, InvalidReply> {
        match self.next()? {
            value @ (Value::Nil | Value::Text(_)) => Ok(stored(value).map_or(Vote::Unknown, Vote::Miss)),
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
#[path = "replies_tests.rs"]
mod tests;
