//! Leader election on Redis.

#[cfg(feature = "api")]
pub mod api;
#[cfg(feature = "operator")]
pub mod cli;
#[cfg(feature = "lock")]
pub mod clock;
#[cfg(feature = "operator")]
pub mod http;
#[cfg(feature = "lock")]
pub mod keeper;
#[cfg(feature = "lock")]
pub mod metrics;
#[cfg(feature = "lock")]
pub mod nodes;
#[cfg(feature = "operator")]
pub mod operator;
#[cfg(feature = "api")]
pub mod plan;
#[cfg(feature = "api")]
pub mod status;
#[cfg(feature = "operator")]
pub mod telemetry;
