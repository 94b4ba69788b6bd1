//! A planted bug of the driver: what it holds back.

use alloc::collections::VecDeque;

use crate::lease::Effect;
use crate::rules::Rules;

/// Seals and releases that wait for the vote that follows them: at the latest until the next input that is no request for an
/// attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Late {
    ends: VecDeque<Effect>,
    /// Whether they go out now.
    due: bool,
}

impl Late {
    pub fn expect(&mut self, wants: bool) {
        self.due = !self.ends.is_empty() && !wants;
    }

    /// The effect if it goes out now.
    pub fn pass(&mut self, rules: Rules, effect: Effect) -> Option<Effect> {
        match &effect {
            Effect::Send { op, .. } if op.is_end() && breaks!(rules, EndAfterVote) => {
                self.ends.push_back(effect);
                return None;
            }
            Effect::Send { .. } if breaks!(rules, EndAfterVote) => self.due = true,
            _ => {}
        }
        Some(effect)
    }

    pub fn next(&mut self, closing: bool) -> Option<Effect> {
        if self.due || closing { self.ends.pop_front() } else { None }
    }
}
