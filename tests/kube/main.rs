//! Tests that need a real Kubernetes control plane: what the API server says, and what the operator makes of it.

mod cases;
mod cel;
mod holder;
mod operator;
mod policy;
mod quorum;
mod resource;
mod rights;
mod roles;
mod status;
mod world;
