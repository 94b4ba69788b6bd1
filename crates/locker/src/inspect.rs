//! What the servers show about a key.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redislease_core::op::{Stage, Stored};
use redislease_core::quorum::Quorum;
use redislease_core::time::Millis;
use redislease_lock::nodes::Shown;

/// What the servers show about a key. See the example of [`Locker::inspect`](crate::Locker::inspect).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Inspection {
    /// A majority of the servers has no key: a request gets the lock, if it is valid and the servers accept writes.
    Free,
    /// A majority of the servers has the keys of one lock. The holder may have ended: then the keys exist until `ttl_left` has
    /// passed.
    Held {
        /// The [owner](crate::Request::owner) that the holder named.
        owner: String,
        /// The [metadata](crate::Request::metadata) that the holder gave; empty without any.
        metadata: String,
        /// The token of the holder.
        token: u64,
        /// When another program can get the lock if the holder does not renew it.
        ttl_left: Duration,
    },
    /// No majority of the servers shows the same: they do not answer, an attempt is under way, or another program has written to the
    /// key ([`AcquireError::Foreign`](crate::AcquireError::Foreign)).
    Undecided,
    /// The [`Locker`](crate::Locker) was shut down: build another one.
    Closed,
}

/// Owner and metadata as one text. An owner has no line break.
pub fn join(owner: &Arc<str>, metadata: &str) -> Arc<str> {
    if metadata.is_empty() { owner.clone() } else { format!("{owner}\n{metadata}").into() }
}

/// Owner and metadata of a stored text.
pub fn split(text: &str) -> (&str, &str) {
    text.split_once('\n').unwrap_or((text, ""))
}

/// Whether so many servers have a value that another program wrote that no majority can take the key.
pub fn is_foreign(quorum: Quorum, answers: &[Shown]) -> bool {
    answers.iter().filter(|answer| **answer == Shown::Foreign).count() >= quorum.blocking()
}

/// What the answers of the servers mean. A server without an answer is not in the list.
pub fn decide(quorum: Quorum, answers: &[Shown]) -> Inspection {
    let majority = quorum.majority();
    if answers.iter().filter(|answer| **answer == Shown::Nothing).count() >= majority {
        return Inspection::Free;
    }
    let mut terms: HashMap<_, Vec<(&Stored, Millis)>> = HashMap::new();
    for answer in answers {
        if let Shown::Value(value, left) = answer
            && value.stage != Stage::Pending
        {
            terms.entry((value.attempt, value.number)).or_default().push((value, *left));
        }
    }
    let Some(mut shown) = terms.into_values().find(|shown| shown.len() >= majority) else {
        return Inspection::Undecided;
    };
    // Another program gets a majority when fewer than these have keys.
    shown.sort_unstable_by_key(|(_, left)| std::cmp::Reverse(*left));
    let (value, left) = shown[quorum.blocking() - 1];
    let (owner, metadata) = split(&value.metadata);
    Inspection::Held {
        owner: owner.to_owned(),
        metadata: metadata.to_owned(),
        token: value.number,
        ttl_left: left.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redislease_core::op::Attempt;

    fn value(stage: Stage, attempt: u128, number: u64) -> Stored {
        Stored { stage, attempt: Attempt(attempt), number, metadata: "me\nfor: this\n".to_owned() }
    }

    #[test]
    fn a_majority_of_equal_values_decides() {
        let quorum = Quorum::of(5).unwrap();
        let none = || Shown::Nothing;
        let term = |left| Shown::Value(value(Stage::Term, 1, 70), Millis(left));
        let pending = |number| Shown::Value(value(Stage::Pending, 1, number), Millis(9));
        assert_eq!(decide(quorum, &[none(), none(), none(), term(9)]), Inspection::Free);
        assert_eq!(decide(quorum, &[]), Inspection::Undecided);
        assert_eq!(decide(quorum, &[none(), none(), term(5), term(6), pending(70)]), Inspection::Undecided);
        let sealed = Shown::Value(value(Stage::Sealed, 1, 70), Millis(4));
        let held = decide(quorum, &[sealed, term(6), term(8), term(7), none()]);
        let (owner, metadata) = ("me".to_owned(), "for: this\n".to_owned());
        assert_eq!(held, Inspection::Held { owner, metadata, token: 70, ttl_left: Duration::from_millis(6) });
        let other = Shown::Value(value(Stage::Term, 2, 70), Millis(4));
        assert_eq!(decide(quorum, &[other.clone(), other, term(8), term(7), none()]), Inspection::Undecided);
        let foreign = || Shown::Foreign;
        assert_eq!(decide(quorum, &[foreign(), foreign(), foreign(), none(), none()]), Inspection::Undecided);
        assert!(is_foreign(quorum, &[foreign(), foreign(), foreign()]) && !is_foreign(quorum, &[foreign(), none()]));
    }

    #[test]
    fn owner_and_metadata_are_one_text() {
        for (owner, metadata) in [("a", ""), ("a", "b"), ("", "b\nc"), ("a b", "\n")] {
            assert_eq!(split(&join(&owner.into(), metadata)), (owner, metadata));
        }
    }
}
