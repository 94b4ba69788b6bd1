# The operator's image: one binary on a base without a shell. Build it from the root of the repository:
#   docker build -t redislease .
FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY Cargo.toml Cargo.lock rustfmt.toml clippy.toml ./
COPY crates crates
COPY src src
# A manifest names its tests and examples; they are not built.
COPY tests tests
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    cargo build --release --locked --bin redislease && \
    install -D target/release/redislease /out/redislease

# It brings glibc, libgcc and certificates, and a user that is not root.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /out/redislease /usr/local/bin/redislease
# Numeric, so that a kubelet can see that it is not root.
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/redislease"]
CMD ["operator"]
