//! Pages about using a lock.

#[doc = include_str!("limits.md")]
pub mod limits {}

#[doc = include_str!("fencing.md")]
pub mod fencing {}

#[doc = include_str!("several_keys.md")]
pub mod several_keys {}

pub mod coming_from;

/// Compiles the programs of the page as they are shown. [`crate`] shows the first one, whose calls a test makes on real servers.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/lock.md")]
mod lock_page {}
