//! The redislease binary.
fn main() {}
