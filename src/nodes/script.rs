//! The scripts: each call as a command, each reply as a value.
//!
//! `scripts/prelude.lua` documents the keys and arguments of the scripts.

use std::fmt::Write as _;
use std::sync::LazyLock;

use redis::Cmd;
use redislease_core::marker::{Marker, RunId};
use redislease_core::op::{Attempt, Op, Token};
use redislease_core::time::Millis;

use super::Keyspace;
pub use super::replies::{
    Answer, Exception, InvalidReply, NoAnswer, Reply, read_check, read_extend, read_fence, read_marker, read_vote,
    read_votes,
};

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

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
