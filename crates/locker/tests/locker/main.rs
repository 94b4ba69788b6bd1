//! The library on real Redis servers, through its public interface.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod access;
mod beside;
mod cancel;
mod defaults;
mod drops;
mod fencing;
mod first_program;
mod guards;
mod hold;
mod inspect;
mod lost_time;
mod many;
mod messages;
mod observer;
mod page;
mod peers;
mod requests;
mod restarts;
mod rounds;
mod stories;
mod support;
