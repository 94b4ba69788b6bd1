//! The values that a Redis node stores, the requests to it, and its answers.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::fmt;

use crate::time::Millis;

/// The identity of one try to take a lease: 128 random bits. It is never used for another term, not even by the same
/// caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u128);

impl Attempt {
    /// No process makes this attempt, so no value has it.
    pub(crate) const NOBODY: Self = Self(0);

    /// The 32 hexadecimal digits as ASCII. They are written by hand, because each request has them: the formatter takes five
    /// times as long.
    pub fn digits(self) -> [u8; 32] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; 32];
        for (two, byte) in digits.chunks_exact_mut(2).zip(self.0.to_be_bytes()) {
            two[0] = DIGITS[usize::from(byte >> 4)];
            two[1] = DIGITS[usize::from(byte & 15)];
        }
        digits
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(core::str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attempt({:x})", self.0)
    }
}

impl core::str::FromStr for Attempt {
    type Err = MalformedValue;
    fn from_str(text: &str) -> Result<Self, MalformedValue> {
        let hex = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if !hex {
            return Err(MalformedValue);
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| MalformedValue)
    }
}

/// A fencing token. It grows with every term of a quorum, and stays below 2^53, so that a number of any language can
/// hold it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl Token {
    /// The least number that is too large for a token.
    pub const END: u64 = 1 << 53;

    /// The least implausible token: half of the range. Tokens start at Unix time in microseconds, and no correct clock
    /// reaches this value before the year 2112.
    pub const FIRST_IMPLAUSIBLE: Self = Self(Self::END / 2);

    /// Whether a Redis node can have given this token. An implausible one was written by hand.
    pub const fn is_plausible(self) -> bool {
        self.0 < Self::FIRST_IMPLAUSIBLE.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What one node has written for an attempt in round 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grant {
    /// `p` with a number of its own: its counter after the increment.
    Numbered(u64),
    /// `t` with the token that the attempt proposed, which is its counter now.
    Proposed(Token),
}

impl Grant {
    /// The number in the value.
    pub const fn number(self) -> u64 {
        match self {
            Self::Numbered(number) | Self::Proposed(Token(number)) => number,
        }
    }

    /// The stage of the value.
    pub const fn stage(self) -> Stage {
        match self {
            Self::Numbered(_) => Stage::Pending,
            Self::Proposed(_) => Stage::Term,
        }
    }

    /// Whether it is a term with this token.
    pub fn is_term(self, token: Token) -> bool {
        self == Self::Proposed(token)
    }
}

/// The name of a holder, as text for people. It is stored beside the value and never compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(pub Arc<str>);

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The stage of a stored value. Stages only go forward, in the order of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// `p`: granted in round 1, not a term.
    Pending,
    /// `t`: a term with this token, the same on every node of the term.
    Term,
    /// `s`: sealed. No process extends it; it ends by its TTL.
    Sealed,
}

impl Stage {
    /// The letter that stands for the stage in a stored value.
    pub const fn letter(self) -> char {
        match self {
            Self::Pending => 'p',
            Self::Term => 't',
            Self::Sealed => 's',
        }
    }
}

/// The stages a release may delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stages {
    /// `p`: the first round failed, and proposed no token.
    Pending,
    /// `pt`: a token was sent, nothing was published.
    Unpublished,
    /// `pts`: the holder is proven to have stopped.
    All,
}

impl Stages {
    /// The letters of the stages.
    pub const fn letters(self) -> &'static str {
        match self {
            Self::Pending => "p",
            Self::Unpublished => "pt",
            Self::All => "pts",
        }
    }

    /// Whether a release deletes a value in `stage`.
    pub const fn holds(self, stage: Stage) -> bool {
        match stage {
            Stage::Pending => true,
            Stage::Term => !matches!(self, Self::Pending),
            Stage::Sealed => matches!(self, Self::All),
        }
    }
}

/// A value as a node stores it: `<stage>:<attempt, 32 hex>:<number>:<metadata>`.
///
/// Two values are the same up to the third colon; the metadata is never compared by a script.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stored {
    /// Pending, term or sealed.
    pub stage: Stage,
    /// The attempt that wrote it.
    pub attempt: Attempt,
    /// The grant number in `p`, the token in `t`, and in `s` the number from before the seal.
    pub number: u64,
    /// The name of the holder, for people.
    pub metadata: String,
}

/// A text that is no stored value: another program writes under our prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MalformedValue;

impl fmt::Display for MalformedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value is not `<p|t|s>:<32 hex>:<number>:<metadata>`: something else writes under this key prefix; choose another one")
    }
}

impl core::error::Error for MalformedValue {}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.stage.letter(), self.attempt, self.number, self.metadata)
    }
}

impl core::str::FromStr for Stored {
    type Err = MalformedValue;
    fn from_str(text: &str) -> Result<Self, MalformedValue> {
        let mut parts = text.splitn(4, ':');
        let mut part = || parts.next().ok_or(MalformedValue);
        let stage = match part()? {
            "p" => Stage::Pending,
            "t" => Stage::Term,
            "s" => Stage::Sealed,
            _ => return Err(MalformedValue),
        };
        let attempt = part()?.parse()?;
        let number = part()?.parse().map_err(|_| MalformedValue)?;
        Ok(Self { stage, attempt, number, metadata: part()?.to_string() })
    }
}

/// One request to a node about the keys of one lease. Each is one script that checks and then writes, atomically.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is named after what it is")]
pub enum Op {
    /// Round 1, and the first half of a join. If every key is free, it writes the proposed token as `t` on every key if the node's
    /// counter is lower, and raises the counter to it; otherwise it writes the next number of the counter as `p`. A repeated request
    /// returns the same grant and writes nothing.
    Acquire {
        attempt: Attempt,
        /// A token that is greater than the counters of all nodes, if they have not changed since they were seen.
        proposal: Option<Token>,
        /// TTL of the keys.
        ttl: Millis,
        /// Stored as metadata.
        holder: Holder,
    },
    /// Round 2, and the second half of a join. It turns the value of exactly this grant into `t` with the token; the TTL stays.
    Confirm {
        attempt: Attempt,
        /// This node's own grant.
        grant: Grant,
        /// The term's token, the same on every node.
        token: Token,
    },
    /// Extends `t` of exactly this attempt and token. It never shortens a TTL and never creates a key.
    Extend {
        attempt: Attempt,
        /// The term's token.
        token: Token,
        /// TTL of the keys from now on.
        ttl: Millis,
    },
    /// Turns the keys of this attempt, in any stage, into `s`; the TTL stays.
    Seal { attempt: Attempt },
    /// Deletes the keys of this attempt that are in one of the stages. Needs no admission and is never late.
    Release {
        attempt: Attempt,
        /// The stages to delete.
        stages: Stages,
    },
    /// Ends the keys of this attempt after `ttl`, neither earlier nor later, and turns them into `s`. For a term whose holder has
    /// stopped, and that nobody may follow before that. The life of sealed keys is only shortened, so that a late repeat changes
    /// nothing. Needs no admission and is never late.
    Keep {
        attempt: Attempt,
        /// TTL of the keys from now on. Zero is the shortest TTL that a key can have.
        ttl: Millis,
    },
}

impl Op {
    /// The attempt of the request.
    pub const fn attempt(&self) -> Attempt {
        match self {
            Self::Acquire { attempt, .. }
            | Self::Confirm { attempt, .. }
            | Self::Extend { attempt, .. }
            | Self::Seal { attempt }
            | Self::Release { attempt, .. }
            | Self::Keep { attempt, .. } => *attempt,
        }
    }

    /// Whether the request extends a term.
    pub const fn is_extend(&self) -> bool {
        matches!(self, Self::Extend { .. })
    }

    /// Whether the request ends a term. Ends and other votes are requested with different calls.
    pub const fn is_end(&self) -> bool {
        matches!(self, Self::Seal { .. } | Self::Release { .. } | Self::Keep { .. })
    }

    /// Whether the request ends a term whose holder has stopped. Then it needs no vote of the node, and is useful when it is late.
    pub const fn is_release(&self) -> bool {
        matches!(self, Self::Release { .. } | Self::Keep { .. })
    }

    /// Whether the request is sent to a node. Otherwise the node abstains at once.
    pub const fn is_sent(&self, is_connected: bool, votes: bool) -> bool {
        is_connected && (votes || self.is_release())
    }
}

/// The answer of a node. Yes and no are the node's own answers; everything else is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Vote {
    /// To acquire: every key has the value of this grant.
    Granted(Grant),
    /// To acquire: at least one key is taken.
    Refused {
        /// The longest remaining life of the keys that are taken.
        ttl_left: Millis,
        /// The value of the key that lives longest.
        by: Stored,
    },
    /// To confirm: every key is `t` of the attempt with the token.
    Confirmed {
        /// The least remaining life of the keys.
        ttl_left: Millis,
    },
    /// To extend: every key lives for at least the TTL from now.
    Extended,
    /// To confirm, extend and seal: a key does not have the expected value. It carries that key's value, if there is one. To seal: the
    /// value of the first key that has one.
    Miss(Option<Stored>),
    /// To seal: every key is `s` of the attempt.
    Sealed {
        /// The least remaining life of the keys.
        ttl_left: Millis,
    },
    /// To release: the number of deleted keys. To keep: the number of keys of the attempt.
    Released(u64),
    /// The node did nothing: it is not admitted, the request came too late, or there was no connection. It says nothing
    /// about the keys.
    Abstained,
    /// No answer in time, a broken connection, or an error. The request may have been executed, and may be executed yet.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stored_values_round_trip(stage in 0..3_usize, attempt: u128, number in 0..Token::END, metadata in "[ -~]{0,40}") {
            let stage = [Stage::Pending, Stage::Term, Stage::Sealed][stage];
            let value = Stored { stage, attempt: Attempt(attempt), number, metadata };
            prop_assert_eq!(value.to_string().parse::<Stored>(), Ok(value));
        }

        #[test]
        fn foreign_text_is_refused_without_a_panic(text in ".{0,80}") {
            if let Ok(value) = text.parse::<Stored>() {
                prop_assert_eq!(value.attempt.to_string().len(), 32);
            }
        }
    }

    #[test]
    fn malformed_values_are_refused() {
        let hex = "0123456789abcdef0123456789abcdef";
        for text in [
            String::new(),
            "p".into(),
            format!("x:{hex}:1:m"),
            format!("p:{hex}:1"),
            format!("p:{}:1:m", &hex[1..]),
            format!("p:{}:1:m", hex.to_uppercase()),
            format!("p:{hex}:-1:m"),
            format!("p:+{}:1:m", &hex[1..]),
        ] {
            assert_eq!(text.parse::<Stored>(), Err(MalformedValue), "{text}");
        }
    }

    #[test]
    fn stages_of_a_release() {
        assert!(Stages::Pending.holds(Stage::Pending) && !Stages::Pending.holds(Stage::Term));
        assert!(Stages::Unpublished.holds(Stage::Term) && !Stages::Unpublished.holds(Stage::Sealed));
        assert!(Stages::All.holds(Stage::Sealed));
    }
}
