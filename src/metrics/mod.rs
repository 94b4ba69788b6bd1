//! What is counted and shown on `/metrics`, one file a room.
//!
//! Every series exists from the start, at zero, or `increase()` would miss the first event; and it vanishes with the
//! thing it describes. Label values come from fixed sets or are names of our own resources.

pub mod nodes;
