//! The recipes of the page on fencing, with a real store each: a holder that is too slow cannot overwrite what its successor wrote.

mod file;
mod http;
mod late_write;
mod object_store;
mod postgres;

use redislease_lab::RedisServer;

pub use self::late_write::Store;
use self::late_write::{late_write_is_rejected, recipe};
use crate::support::three;

pub struct Redis(pub RedisServer);

impl Store for Redis {
    fn write(&self, value: &str, token: u64) -> bool {
        let reply =
            self.0.command(&["EVAL", &recipe("lua"), "2", "account", "account:token", value, &token.to_string()]);
        let reply = format!("{reply:?}");
        assert!(reply.contains("OK") != reply.contains("STALE"), "{reply}");
        reply.contains("OK")
    }

    fn value(&self) -> String {
        self.0.command(&["GET", "account"]).unwrap().text().unwrap()
    }
}

#[tokio::test]
async fn redis_rejects_a_late_write() {
    let (_servers, locker) = three().await;
    late_write_is_rejected(&locker, &Redis(RedisServer::start().unwrap())).await;
}

#[tokio::test]
async fn a_file_rejects_a_late_write() {
    let (_servers, locker) = three().await;
    late_write_is_rejected(&locker, &file::File::new()).await;
}

#[tokio::test]
async fn a_service_rejects_a_late_write() {
    let (_servers, locker) = three().await;
    late_write_is_rejected(&locker, &http::Service::start()).await;
}

#[tokio::test]
async fn postgresql_rejects_a_late_write() {
    let Some(database) = postgres::Database::start() else { return };
    let (_servers, locker) = three().await;
    late_write_is_rejected(&locker, &database).await;
}
