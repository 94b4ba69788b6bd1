//! The lock on real redis-servers: scripts, admission, and what breaks.

mod admission;
mod faults;
mod reference;
mod scripts;
mod support;
mod votes;
