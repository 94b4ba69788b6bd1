//! Tests on a real Kubernetes control plane: the CRDs, the operator and the command line. They need `make tools` and
//! redis-server.
//!
//! The test harness starts the tests in the order of their names. A long one must not start last, when nothing is left to
//! run beside it.

mod annotations;
mod beside;
mod cases;
mod cel;
mod certificates;
mod consent;
mod definitions;
mod docs;
mod doctor;
mod endpoints;
mod examples;
mod gate;
mod granularity;
mod guarded;
mod handover;
mod holder;
mod lost_time;
mod many_workloads;
mod operator;
mod quorum;
mod replicas;
mod resource;
mod restore;
mod rights;
mod roles;
mod support;
mod tenants;
mod webhook;
mod why;
