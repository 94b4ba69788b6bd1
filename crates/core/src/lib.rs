//! The lock protocol as pure state machines.
#![no_std]
extern crate alloc;
