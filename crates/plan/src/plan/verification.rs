//! Whether this process knows the latest term: an object that carries a later token than the status shows what it has missed.

use redislease_core::op::Token;

use super::entitlement::Entitlement;
use super::output::Effects;

/// The direct read of the status that follows a later token on an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Verification {
    /// The latest token according to a read since the entitlement changed, and the greatest token that objects carried when
    /// the read was requested.
    verified: Option<(Token, Token)>,
    /// A read is under way, requested when objects carried this token.
    verifying: Option<Token>,
}

impl Verification {
    /// Takes the answer to a read of the lease; `None` if it has none.
    pub const fn lease_read(&mut self, latest: Option<Token>) {
        if let (Some(carried), Some(latest)) = (self.verifying.take(), latest) {
            self.verified = Some((latest, carried));
        }
    }

    pub const fn entitlement_changed(&mut self) {
        self.verified = None;
    }

    /// Whether the lease was read since the entitlement changed, and the status shows no other token.
    pub fn is_verified(&self, entitlement: &Entitlement) -> bool {
        self.verified.is_some_and(|(latest, _)| latest == entitlement.latest)
    }

    /// The token that an object carries, if it is later than that of the status. Either an older resource with this name left it
    /// there, which has no effect, or a later term exists, which this process must read first.
    pub fn later(&self, token: Option<Token>, entitlement: &Entitlement) -> Option<Token> {
        let is_verified =
            |token| self.verified.is_some_and(|(latest, carried)| latest == entitlement.latest && token <= carried);
        token.filter(|token| *token > entitlement.latest && !is_verified(*token))
    }

    /// Reads the lease, because an object carries this token. A read that was requested for a lower one, or for another purpose, does
    /// not count: its answer causes the next turn.
    pub fn verify(&mut self, carried: Token, out: &mut Effects) {
        if !out.is_reading_lease() {
            self.verifying = Some(carried);
            out.read_lease();
        }
    }
}
