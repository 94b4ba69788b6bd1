//! Starters for tests and the demo.
