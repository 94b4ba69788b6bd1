# The operator's image: one static binary on an empty root file system. Build it in the root of the repository:
#   docker build --build-arg VERSION=0.1.0 -t registry.example.com/redislease:0.1.0 .
#
# With an already built static binary named `redislease` in the context folder, no other image is pulled:
#   buildah build --target packed -f Dockerfile -t redislease:0.1.0 FOLDER
# hack/image.sh does this.

FROM scratch AS base
ARG VERSION=dev
LABEL org.opencontainers.image.title="redislease" \
      org.opencontainers.image.description="Leader election for Kubernetes on a quorum of independent Redis masters" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
# A numeric user: with runAsNonRoot, the kubelet cannot verify a user name.
USER 65532:65532
EXPOSE 8080
# One heap instead of several for each processor, and unused memory goes back to the system after a second
# (docs/measurements.md).
ENV _RJEM_MALLOC_CONF=narenas:1,dirty_decay_ms:1000,muzzy_decay_ms:0
ENTRYPOINT ["/redislease"]
CMD ["operator"]

FROM base AS packed
COPY redislease /redislease

FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY Cargo.toml Cargo.lock rustfmt.toml clippy.toml ./
COPY crates crates
COPY src src
# Cargo.toml names the tests and benchmarks, so Cargo needs their files. They are not built.
COPY tests tests
COPY benches benches
COPY hack/static-binary.sh hack/rust-target.sh hack/
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    install -D -m 755 "$(hack/static-binary.sh)" /out/redislease

FROM base
COPY --from=build /out/redislease /redislease
