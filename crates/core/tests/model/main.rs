//! The model checker on the core's own machines.
mod interned;
mod lease;
mod machine;
mod runs;
mod site;
mod step;
mod world;
