//! A direct read of the API server, which is sent once and repeated after a pause if it is not answered.

use redislease_core::time::Time;

use super::output::Effects;

/// The state of one read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum DirectRead {
    #[default]
    Unsent,
    UnderWay,
    Answered,
    /// Its answer does not count, and the next one is sent after it.
    Void,
    /// It may be sent again at this time.
    AgainAt(Time),
}

impl DirectRead {
    /// What it has answered does not count any more, nor what it will answer.
    pub const fn void(self) -> Self {
        match self {
            Self::UnderWay | Self::Void => Self::Void,
            Self::Unsent | Self::Answered | Self::AgainAt(_) => Self::Unsent,
        }
    }

    /// Whether the read must be sent now. Then it is under way.
    pub fn begin(&mut self, now: Time, out: &mut Effects) -> bool {
        match *self {
            Self::UnderWay | Self::Answered | Self::Void => return false,
            Self::AgainAt(at) if now < at => {
                out.wake_at(at);
                return false;
            }
            Self::AgainAt(_) | Self::Unsent => {}
        }
        *self = Self::UnderWay;
        true
    }
}
