//! Merges the watches of several namespaces into one stream, whose list is complete when the lists of all are.

use futures::stream::{BoxStream, SelectAll};
use futures::{Stream, StreamExt, stream};
use kube::runtime::watcher::Event;

/// Opens the watch of one namespace. It begins with [`Event::Init`].
pub(super) type Open<K> = Box<dyn Fn() -> BoxStream<'static, Event<K>> + Send>;

/// The progress of one watch's list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// It has listed no object yet, so it can restart its list without consequences.
    Nothing,
    /// It has listed objects.
    Some,
    /// Its list is complete.
    All,
}

struct Merge<K> {
    open: Vec<Open<K>>,
    watches: SelectAll<BoxStream<'static, (usize, Event<K>)>>,
    progress: Vec<Progress>,
}

/// Merges the watches. When one of them lists again, the others are reopened too: a list decides which objects are
/// deleted, and only a complete one can.
pub(super) fn merge<K: Send + 'static>(open: Vec<Open<K>>) -> impl Stream<Item = Event<K>> + Send {
    let merge = Merge { open, watches: SelectAll::new(), progress: Vec::new() };
    stream::unfold(merge, async |mut merge| merge.next().await.map(|event| (event, merge)))
}

impl<K: Send + 'static> Merge<K> {
    async fn next(&mut self) -> Option<Event<K>> {
        if self.watches.is_empty() {
            return Some(self.begin());
        }
        loop {
            let (index, event) = self.watches.next().await?;
            let progress = &mut self.progress[index];
            match event {
                Event::Init if *progress == Progress::Nothing => {}
                Event::Init => return Some(self.begin()),
                Event::InitApply(_) => {
                    *progress = Progress::Some;
                    return Some(event);
                }
                Event::InitDone => {
                    *progress = Progress::All;
                    if self.progress.iter().all(|progress| *progress == Progress::All) {
                        return Some(event);
                    }
                }
                Event::Apply(_) | Event::Delete(_) => return Some(event),
            }
        }
    }

    /// Opens all watches. They send no request before the event is taken.
    fn begin(&mut self) -> Event<K> {
        self.progress = vec![Progress::Nothing; self.open.len()];
        self.watches = stream::select_all(
            self.open.iter().enumerate().map(|(index, open)| open().map(move |event| (index, event)).boxed()),
        );
        Event::Init
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures::FutureExt as _;
    use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};

    use super::*;

    type Name = &'static str;
    /// The senders of the watches of one namespace, in the order in which they were opened.
    type Feed = Arc<Mutex<Vec<UnboundedSender<Event<Name>>>>>;

    /// Watches that the test feeds.
    struct Fed {
        merged: BoxStream<'static, Event<Name>>,
        feeds: Vec<Feed>,
    }

    impl Fed {
        fn new(namespaces: usize) -> Self {
            let feeds: Vec<Feed> = (0..namespaces).map(|_| Arc::default()).collect();
            let open = feeds.iter().map(|feed| {
                let feed = Arc::clone(feed);
                let open = move || {
                    let (sender, receiver): (_, UnboundedReceiver<_>) = unbounded();
                    feed.lock().expect("no test panics with it").push(sender);
                    receiver.boxed()
                };
                Box::new(open) as Open<_>
            });
            let mut fed = Self { merged: merge(open.collect()).boxed(), feeds };
            assert_eq!(fed.events(), ["list"]);
            fed
        }

        fn feed(&self, namespace: usize, events: impl IntoIterator<Item = Event<Name>>) {
            let feeds = self.feeds[namespace].lock().expect("no test panics with it");
            let last = feeds.last().expect("the watch is open");
            events.into_iter().for_each(|event| last.unbounded_send(event).expect("the receiver exists"));
        }

        /// How often the watch of a namespace was opened.
        fn opened(&self, namespace: usize) -> usize {
            self.feeds[namespace].lock().expect("no test panics with it").len()
        }

        /// The events that are ready.
        fn events(&mut self) -> Vec<String> {
            std::iter::from_fn(|| self.merged.next().now_or_never().flatten()).map(|event| text(&event)).collect()
        }
    }

    fn text(event: &Event<Name>) -> String {
        match event {
            Event::Init => "list".to_owned(),
            Event::InitApply(name) => format!("listed {name}"),
            Event::InitDone => "complete".to_owned(),
            Event::Apply(name) => format!("changed {name}"),
            Event::Delete(name) => format!("deleted {name}"),
        }
    }

    #[test]
    fn the_list_is_complete_with_the_last_namespace() {
        let mut fed = Fed::new(2);
        fed.feed(0, [Event::Init, Event::InitApply("a"), Event::InitDone, Event::Apply("a")]);
        assert_eq!(fed.events(), ["listed a", "changed a"]);
        fed.feed(1, [Event::Init, Event::InitDone]);
        assert_eq!(fed.events(), ["complete"]);
        fed.feed(0, [Event::Delete("a")]);
        fed.feed(1, [Event::Apply("b")]);
        let mut events = fed.events();
        events.sort();
        assert_eq!(events, ["changed b", "deleted a"]);
    }

    #[test]
    fn when_one_namespace_lists_again_all_do() {
        let mut fed = Fed::new(2);
        for namespace in 0..2 {
            fed.feed(namespace, [Event::Init, Event::InitApply("a"), Event::InitDone]);
        }
        assert_eq!(fed.events(), ["listed a", "listed a", "complete"]);
        fed.feed(1, [Event::Init]);
        assert_eq!(fed.events(), ["list"]);
        assert_eq!([fed.opened(0), fed.opened(1)], [2, 2]);
        for namespace in 0..2 {
            fed.feed(namespace, [Event::Init, Event::InitDone]);
        }
        assert_eq!(fed.events(), ["complete"]);
    }

    #[test]
    fn a_failed_first_page_does_not_restart_the_other_lists() {
        let mut fed = Fed::new(2);
        fed.feed(0, [Event::Init, Event::InitApply("a"), Event::InitDone]);
        fed.feed(1, [Event::Init, Event::Init, Event::InitApply("b"), Event::InitDone]);
        let mut events = fed.events();
        events.sort();
        assert_eq!(events, ["complete", "listed a", "listed b"]);
        assert_eq!([fed.opened(0), fed.opened(1)], [1, 1]);
    }

    #[test]
    fn a_failed_later_page_restarts_the_whole_list() {
        let mut fed = Fed::new(2);
        fed.feed(0, [Event::Init, Event::InitApply("a"), Event::Init]);
        assert_eq!(fed.events(), ["listed a", "list"]);
        assert_eq!([fed.opened(0), fed.opened(1)], [2, 2]);
    }
}
