# The operator's image: one binary on a base image without a shell. Build it in the root of the repository:
#   docker build -t redislease .
FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY Cargo.toml Cargo.lock rustfmt.toml clippy.toml ./
COPY crates crates
COPY src src
# Cargo.toml names the tests, so Cargo needs their files. They are not built.
COPY tests tests
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    cargo build --release --locked --bin redislease && \
    install -D target/release/redislease /out/redislease

# The base image has glibc, libgcc, CA certificates and a non-root user.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /out/redislease /usr/local/bin/redislease
# A numeric user: with runAsNonRoot, the kubelet cannot verify a user name.
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/redislease"]
CMD ["operator"]
