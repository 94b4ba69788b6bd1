//! Pages about using a lock.

#[doc = include_str!("limits.md")]
pub mod limits {}

#[doc = include_str!("fencing.md")]
pub mod fencing {}

#[doc = include_str!("several_keys.md")]
pub mod several_keys {}

#[doc = include_str!("../../../../docs/coming-from.md")]
pub mod coming_from {}
