//! Conditions that move only when they change.
