//! Permission to run one control plane.

/// A permission. Dropping it calls its function, which makes room for another one.
#[derive(Debug)]
pub(super) struct Permit(pub(super) fn());

impl Drop for Permit {
    fn drop(&mut self) {
        (self.0)();
    }
}
