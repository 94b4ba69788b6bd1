//! Tests of the Helm chart: its templates, its schema, and its life on a real Kubernetes control plane. They need
//! `make tools` and redis-server.

mod aggregated_roles;
mod cluster;
mod combinations;
mod commands;
mod docs;
mod doctor;
mod lifecycle;
mod manifests;
mod namespaces;
mod nulls;
mod objects;
mod pages;
mod policy;
mod refusals;
mod templates;
mod trial;
