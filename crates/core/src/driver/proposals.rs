//! The tokens that attempts propose.
//!
//! A node takes a proposed token if its counter is lower. If a majority takes it, the attempt needs no second round. A process
//! that knows the counters of a quorum proposes a token that is one greater: as long as no other process raises them, every
//! attempt needs one round. A proposal that is too low costs nothing, because the node grants its next number instead.

use crate::op::{Token, Vote};

/// The next proposal for one quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Proposals {
    /// The greatest number that a node has granted or this process has proposed. Zero if there is none.
    highest: u64,
}

impl Proposals {
    /// Learns from the answer of a node. Only a grant shows the counter: a value that refuses may have been written by hand.
    pub const fn saw(&mut self, vote: &Vote) {
        if let Vote::Granted(grant) = vote
            && grant.number() > self.highest
        {
            self.highest = grant.number();
        }
    }

    /// The token for an attempt that begins now. `None` until a node has granted, and if the token would be
    /// [implausible](Token::is_plausible).
    pub fn next(&mut self, floor: Token) -> Option<Token> {
        if self.highest == 0 {
            return None;
        }
        let token = Token(self.highest.max(floor.0).saturating_add(1));
        if !token.is_plausible() {
            return None;
        }
        self.highest = token.0;
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Grant;

    #[test]
    fn attempts_propose_tokens_above_all_that_is_known() {
        let mut proposals = Proposals::default();
        assert_eq!(proposals.next(Token(7)), None, "no counter is known");
        proposals.saw(&Vote::Granted(Grant::Numbered(40)));
        proposals.saw(&Vote::Granted(Grant::Numbered(38)));
        proposals.saw(&Vote::Released(90));
        assert_eq!(proposals.next(Token(7)), Some(Token(41)));
        assert_eq!(proposals.next(Token(7)), Some(Token(42)), "the attempt before is under way");
        assert_eq!(proposals.next(Token(60)), Some(Token(61)), "a status shows a greater token");
        proposals.saw(&Vote::Granted(Grant::Proposed(Token(61))));
        assert_eq!(proposals.next(Token(60)), Some(Token(62)));
    }

    #[test]
    fn an_implausible_token_is_not_proposed() {
        let mut proposals = Proposals::default();
        proposals.saw(&Vote::Granted(Grant::Numbered(Token::FIRST_IMPLAUSIBLE.0 - 1)));
        assert_eq!(proposals.next(Token(0)), None);
        proposals.saw(&Vote::Granted(Grant::Numbered(u64::MAX)));
        assert_eq!(proposals.next(Token(u64::MAX - 1)), None);
    }
}
