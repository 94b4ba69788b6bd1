//! The scripts: each call as a command, each reply as a value.
//!
//! Each Lua file in `scripts` documents its keys, arguments and reply.

use std::io::Write as _;
use std::sync::LazyLock;

use redis::{Cmd, RedisError};
use redislease_core::marker::{Marker, RunId};
use redislease_core::op::{Attempt, Op, Stage, Token};
use redislease_core::time::Millis;
use redislease_core::wire::replies::Value;
use redislease_core::wire::{Batch, Wire};

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
    Votes => "votes",
    Ends => "ends",
    Extend => "extend",
    Observe => "observe",
    Admit => "admit",
    Fence => "fence",
    Read => "read",
    Check => "check",
}

struct Source {
    text: String,
    sha: String,
}

static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let source = |script: &Script| {
        // The first line has the flags and must stay the first.
        let (flags, body) = script.body().split_once('\n').unwrap_or_default();
        let text = if script.has_prelude() {
            format!("{flags}\n{}\n{body}", include_str!("scripts/prelude.lua"))
        } else {
            script.body().to_owned()
        };
        let sha = redis::Script::new(&text).get_hash().to_owned();
        Source { text, sha }
    };
    Script::ALL.iter().map(source).collect()
});

impl Script {
    /// The scripts for votes define only what they use: each function that a script defines costs time in each call.
    const fn has_prelude(self) -> bool {
        !matches!(self, Self::Votes | Self::Ends | Self::Extend)
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

    /// The call with its `count` keys; the arguments follow.
    fn call<'a>(self, keyspace: &Keyspace, count: usize, keys: impl Iterator<Item = &'a String>) -> Cmd {
        // Enough for one key and three arguments of each request.
        let mut command = Cmd::with_capacity(8 + 4 * count, 256 + 256 * count);
        command.arg("EVALSHA");
        command.arg(&SOURCES[self as usize].sha).arg(count + 2).arg(keyspace.marker()).arg(keyspace.fence());
        for key in keys {
            command.arg(key);
        }
        command
    }
}

/// Requests votes in one call, which are executed in order: only seals, releases and keeps, or only acquires and confirms. `marker`
/// must be on the node, and `deadline` is in milliseconds of its TIME; a release needs neither.
pub fn votes<'a>(
    keyspace: &Keyspace,
    marker: &str,
    deadline: u64,
    requests: impl Iterator<Item = (&'a [String], &'a Op)> + Clone,
) -> Cmd {
    let ends = requests.clone().next().is_some_and(|(_, op)| op.is_end());
    let keys = requests.clone().map(|(locks, _)| locks.len()).sum();
    let script = if ends { Script::Ends } else { Script::Votes };
    let mut command = script.call(keyspace, keys, requests.clone().flat_map(|(locks, _)| locks));
    command.arg(marker);
    if !ends {
        let acquires = requests.clone().filter(|(_, op)| matches!(op, Op::Acquire { .. })).count();
        command.arg(deadline).arg(acquires).arg(requests.clone().fold(0, |fence, (_, op)| fence_after(fence, op)));
    }
    let mut arguments = Arguments::default();
    for (locks, op) in requests {
        arguments.add(&mut command, locks.len(), op);
    }
    command
}

/// The fence after a request that is not refused.
fn fence_after(fence: u64, op: &Op) -> u64 {
    match op {
        Op::Acquire { proposal, .. } => proposal.map_or(0, |token| token.0).max(fence + 1),
        Op::Confirm { token, .. } => token.0.max(fence),
        _ => fence,
    }
}

/// Writes the arguments of the requests in one call.
#[derive(Default)]
struct Arguments<'a> {
    /// What the earlier requests set, which is not repeated.
    set: Option<Settings<'a>>,
    text: Vec<u8>,
}

/// What requests of one call often have in common.
#[derive(PartialEq, Eq)]
struct Settings<'a> {
    keys: usize,
    /// Of acquires.
    life: Option<(Millis, &'a str)>,
    /// Of seals, releases and keeps.
    what: Option<What>,
}

/// What a request that ends a term asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// `seal`, or the stages of a release.
    Word(&'static str),
    /// The TTL of a keep.
    Life(Millis),
}

impl<'a> Arguments<'a> {
    fn add(&mut self, command: &mut Cmd, keys: usize, op: &'a Op) {
        let attempt = op.attempt();
        match op {
            Op::Acquire { proposal, ttl, holder, .. } => {
                let settings = Settings { keys, life: Some((*ttl, &*holder.0)), what: None };
                if self.set.as_ref() != Some(&settings) {
                    command.arg(keys).arg(ttl.0).arg(&*holder.0);
                    self.set = Some(settings);
                }
                command.arg(self.text(b"", attempt, Some(proposal.unwrap_or_default().0)));
            }
            Op::Confirm { grant, token, .. } => {
                if self.set.as_ref().map_or(1, |set| set.keys) != keys {
                    command.arg(keys).arg(0).arg("");
                    self.set = Some(Settings { keys, life: None, what: None });
                }
                let before: &[u8] = if grant.stage() == Stage::Term { b"t:" } else { b"p:" };
                command.arg(self.text(before, attempt, Some(grant.number())));
                command.arg(self.text(b"t:", attempt, Some(token.0)));
            }
            // Extensions have a script of their own.
            Op::Extend { .. } => {}
            Op::Seal { .. } => self.add_end(command, keys, attempt, What::Word("seal")),
            Op::Release { stages, .. } => self.add_end(command, keys, attempt, What::Word(stages.letters())),
            // A TTL of zero is an error.
            Op::Keep { ttl, .. } => self.add_end(command, keys, attempt, What::Life((*ttl).max(Millis(1)))),
        }
    }

    fn add_end(&mut self, command: &mut Cmd, keys: usize, attempt: Attempt, what: What) {
        let settings = Settings { keys, life: None, what: Some(what) };
        if self.set.as_ref() != Some(&settings) {
            command.arg(keys);
            match what {
                What::Word(word) => command.arg(word),
                What::Life(ttl) => command.arg(ttl.0),
            };
            self.set = Some(settings);
        }
        command.arg(self.text(b":", attempt, None));
    }

    /// `<before><attempt>:`, or `<before><attempt>:<number>:`.
    fn text(&mut self, before: &[u8], attempt: Attempt, number: Option<u64>) -> &[u8] {
        self.text.clear();
        self.text.extend_from_slice(before);
        self.text.extend_from_slice(&attempt.digits());
        self.text.push(b':');
        if let Some(number) = number {
            // Writing to a Vec cannot fail.
            let _ = write!(self.text, "{number}:");
        }
        &self.text
    }
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
pub fn extend<'a>(
    keyspace: &Keyspace,
    marker: &str,
    deadline: u64,
    leases: impl Iterator<Item = Extension<'a>> + Clone,
) -> Cmd {
    let count = leases.clone().map(|lease| lease.keys.len()).sum();
    let mut command = Script::Extend.call(keyspace, count, leases.clone().flat_map(|lease| lease.keys));
    command.arg(marker).arg(deadline);
    let mut arguments = Arguments::default();
    let mut before = None;
    for Extension { keys, attempt, token, ttl } in leases {
        if before.replace((keys.len(), ttl)) != Some((keys.len(), ttl)) {
            command.arg(keys.len()).arg(ttl.0);
        }
        command.arg(arguments.text(b"t:", attempt, Some(token.0)));
    }
    command
}

/// One call of the wire. Releases need neither a marker nor a deadline.
pub fn batch<R, C>(keyspace: &Keyspace, wire: &Wire<String, R, C>, batch: &Batch<String, R>) -> Cmd {
    let (marker, deadline) = batch.terms().map(|terms| (terms.marker.to_string(), terms.deadline)).unwrap_or_default();
    let requests = wire.requests(batch).iter().map(|asked| &asked.request);
    if !batch.extends() {
        return votes(keyspace, &marker, deadline, requests.map(|request| (&*request.keys, &request.op)));
    }
    let extensions = requests.filter_map(|request| match request.op {
        Op::Extend { attempt, token, ttl } => Some(Extension { keys: &request.keys, attempt, token, ttl }),
        _ => None,
    });
    extend(keyspace, &marker, deadline, extensions)
}

/// Reads the marker, and writes a wait ticket if the marker does not name `run_id` or is `stepped`.
pub fn observe(keyspace: &Keyspace, run_id: &RunId, nonce: u128, stepped: Option<&Marker>) -> Cmd {
    let stepped = stepped.map(Marker::to_string).unwrap_or_default();
    let mut command = Script::Observe.call(keyspace, 0, [].iter());
    command.arg(&**run_id).arg(format!("{nonce:032x}")).arg(stepped);
    command
}

/// Reads the value and TTL of the key of a lease.
pub fn read(keyspace: &Keyspace, marker: &Marker, key: &String) -> Cmd {
    let mut command = Script::Read.call(keyspace, 1, std::iter::once(key));
    command.arg(marker.to_string());
    command
}

/// Replaces `ticket` by `marker`, and raises the fence to at least `seed`.
pub fn admit(keyspace: &Keyspace, ticket: &Marker, marker: &Marker, seed: Token) -> Cmd {
    let mut command = Script::Admit.call(keyspace, 0, [].iter());
    command.arg(ticket.to_string()).arg(marker.to_string()).arg(seed.0);
    command
}

/// Reads the fence, and which configuration the node votes for. `marker` is the expected one.
pub fn fence(keyspace: &Keyspace, marker: &Marker) -> Cmd {
    let mut command = Script::Fence.call(keyspace, 0, [].iter());
    command.arg(marker.to_string()).arg(&**marker.run_id());
    command
}

/// Tries every command that the scripts use.
pub fn check(keyspace: &Keyspace) -> Cmd {
    Script::Check.call(keyspace, 1, std::iter::once(&keyspace.check().to_owned()))
}

/// Converts a reply without copying its texts. The errors in the place of answers are added to `errors`.
pub fn value(raw: redis::Value, errors: &mut Vec<RedisError>) -> Value {
    match raw {
        redis::Value::Nil => Value::Nil,
        redis::Value::Int(number) => Value::Int(number),
        redis::Value::BulkString(bytes) => Value::Text(bytes),
        // The same memory is used for the values.
        redis::Value::Array(values) => Value::List(values.into_iter().map(|raw| value(raw, errors)).collect()),
        redis::Value::ServerError(error) => {
            errors.push(error.into());
            Value::Error
        }
        other => Value::Other(format!("{other:?}")),
    }
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
