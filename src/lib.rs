//! Leader election on Redis.
