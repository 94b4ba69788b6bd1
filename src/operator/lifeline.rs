//! Tasks without which the process is of no use: when one of them ends by itself, so does the process.
//!
//! A watch that ended silently would leave every lease as it is, behind a probe that says all is well.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

/// What holds the process together.
#[derive(Debug)]
pub(super) struct Lifeline {
    stop: CancellationToken,
    failure: Mutex<Option<String>>,
}

impl Lifeline {
    pub fn new(stop: CancellationToken) -> Arc<Self> {
        Arc::new(Self { stop, failure: Mutex::new(None) })
    }

    /// `work`, which must not end before the process stops.
    pub fn lasting<W: Future<Output = ()>>(
        self: &Arc<Self>,
        what: &'static str,
        work: W,
    ) -> impl Future<Output = ()> + use<W> {
        self.hold(what.to_owned(), false, work)
    }

    /// `work`, which may be done, but must not panic.
    pub fn unbroken<W: Future<Output = ()>>(
        self: &Arc<Self>,
        what: String,
        work: W,
    ) -> impl Future<Output = ()> + use<W> {
        self.hold(what, true, work)
    }

    /// What ended the process, if something did that should not have.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn hold<W: Future<Output = ()>>(
        self: &Arc<Self>,
        what: String,
        may_return: bool,
        work: W,
    ) -> impl Future<Output = ()> + use<W> {
        let held = Held { lifeline: self.clone(), what, may_return };
        async move {
            work.await;
            drop(held);
        }
    }
}

/// Dropped when its task ends, however it does.
struct Held {
    lifeline: Arc<Lifeline>,
    what: String,
    may_return: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        let Lifeline { stop, failure } = self.lifeline.as_ref();
        let how = if std::thread::panicking() {
            "panicked"
        } else if self.may_return || stop.is_cancelled() {
            return;
        } else {
            "ended by itself"
        };
        let text = format!("{} {how}: the process ends, to be started again", self.what);
        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
        stop.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the process was stopped, and what it says.
    async fn after(
        begin: impl FnOnce(&Arc<Lifeline>) -> futures::future::BoxFuture<'static, ()>,
    ) -> (bool, Option<String>) {
        let stop = CancellationToken::new();
        let lifeline = Lifeline::new(stop.clone());
        let _ = tokio::spawn(begin(&lifeline)).await;
        (stop.is_cancelled(), lifeline.failure())
    }

    #[tokio::test]
    async fn a_task_that_ends_ends_the_process() {
        let text = |how: &str| (true, Some(format!("it {how}: the process ends, to be started again")));
        let quiet = (false, None);
        assert_eq!(after(|line| Box::pin(line.lasting("it", async {}))).await, text("ended by itself"));
        assert_eq!(after(|line| Box::pin(line.unbroken("it".into(), async {}))).await, quiet);
        let broken = || async { panic!("as the test asks for") };
        assert_eq!(after(|line| Box::pin(line.lasting("it", broken()))).await, text("panicked"));
        assert_eq!(after(|line| Box::pin(line.unbroken("it".into(), broken()))).await, text("panicked"));
    }

    #[tokio::test]
    async fn after_the_stop_every_task_may_end() {
        let stopped = |line: &Arc<Lifeline>| -> futures::future::BoxFuture<'static, ()> {
            line.stop.cancel();
            Box::pin(line.lasting("it", async {}))
        };
        assert_eq!(after(stopped).await, (true, None));
    }
}
