//! Leader election on Redis.

#[cfg(feature = "api")]
pub mod api;
#[cfg(feature = "operator")]
pub mod cli;
#[cfg(feature = "api")]
pub mod plan;
