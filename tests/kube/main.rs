//! Tests on a real Kubernetes control plane: the CRDs, the operator and the command line. They need `make tools` and
//! redis-server.

mod active_service;
mod annotations;
mod cases;
mod cel;
mod clusters;
mod docs;
mod doctor;
mod examples;
mod holder;
mod operator;
mod policy;
mod quorum;
mod replicas;
mod resource;
mod rights;
mod roles;
mod scale;
mod status;
mod support;
mod tenants;
mod tls;
mod why;
