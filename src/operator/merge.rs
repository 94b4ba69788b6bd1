//! Merges the watches of several namespaces into one stream, whose list is complete when the lists of all are.

use std::collections::VecDeque;

use futures::stream::{BoxStream, SelectAll};
use futures::{Stream, StreamExt, stream};
use kube::runtime::watcher::Event;

/// What the watch of one namespace shows.
pub(super) enum Shown<K> {
    Event(Event<K>),
    /// The API server refuses the list: the namespace was deleted together with the role in it, for example.
    Refused,
}

/// What all watches show.
pub(super) enum Merged<K> {
    Event(Event<K>),
    /// The list that ends next lacks the namespace with this index: what is known about its objects stays.
    Unlisted(usize),
}

/// Opens the watch of one namespace. It begins with [`Event::Init`].
pub(super) type Open<K> = Box<dyn Fn() -> BoxStream<'static, Shown<K>> + Send>;

/// The progress of one watch's list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// It has listed no object yet, so it can restart its list without consequences.
    Nothing,
    /// As [`Progress::Nothing`], and the API server refuses the list.
    Refused,
    /// It has listed objects.
    Some,
    /// Its list is complete.
    All,
}

struct Merge<K> {
    open: Vec<Open<K>>,
    watches: SelectAll<BoxStream<'static, (usize, Shown<K>)>>,
    progress: Vec<Progress>,
    /// Whether a list is in progress.
    lists: bool,
    /// Whether all namespaces were listed once. Before, a namespace without a list is not known at all.
    listed: bool,
    /// What comes before the next event of a watch.
    next: VecDeque<Merged<K>>,
}

/// Merges the watches. When one of them lists again, the others are reopened too: a list decides which objects are
/// deleted, and only a complete one can. A namespace whose list is refused does not delay those of the others.
pub(super) fn merge<K: Send + 'static>(open: Vec<Open<K>>) -> impl Stream<Item = Merged<K>> + Send {
    let (watches, progress, next) = (SelectAll::new(), Vec::new(), VecDeque::new());
    let merge = Merge { open, watches, progress, lists: true, listed: false, next };
    stream::unfold(merge, async |mut merge| merge.next().await.map(|event| (event, merge)))
}

impl<K: Send + 'static> Merge<K> {
    async fn next(&mut self) -> Option<Merged<K>> {
        if self.watches.is_empty() {
            self.begin();
        }
        loop {
            if let Some(next) = self.next.pop_front() {
                return Some(next);
            }
            let (index, shown) = self.watches.next().await?;
            self.take(index, shown);
        }
    }

    fn take(&mut self, index: usize, shown: Shown<K>) {
        let progress = &mut self.progress[index];
        let began = !matches!(progress, Progress::Nothing | Progress::Refused);
        match shown {
            Shown::Event(Event::Init) | Shown::Refused if !began => {
                if matches!(shown, Shown::Refused) {
                    *progress = Progress::Refused;
                    self.end();
                }
            }
            // The list that is complete lacks the objects of this namespace.
            Shown::Event(Event::InitApply(_) | Event::InitDone) if !self.lists => self.begin(),
            Shown::Event(Event::Init) => self.begin(),
            Shown::Event(event @ Event::InitApply(_)) => {
                *progress = Progress::Some;
                self.next.push_back(Merged::Event(event));
            }
            Shown::Event(Event::InitDone) => {
                *progress = Progress::All;
                self.end();
            }
            Shown::Event(event) => self.next.push_back(Merged::Event(event)),
            Shown::Refused => {}
        }
    }

    /// Ends the list if it is complete, but for namespaces whose list is refused.
    fn end(&mut self) {
        let is = |progress| move |other: &Progress| *other == progress;
        let all = self.progress.iter().all(is(Progress::All));
        let others = self.progress.iter().all(|one| matches!(one, Progress::All | Progress::Refused));
        if self.lists && (all || self.listed && others && self.progress.iter().any(is(Progress::All))) {
            (self.lists, self.listed) = (false, true);
            let refused = self.progress.iter().enumerate().filter(|(_, one)| **one == Progress::Refused);
            self.next.extend(refused.map(|(index, _)| Merged::Unlisted(index)));
            self.next.push_back(Merged::Event(Event::InitDone));
        }
    }

    /// Opens all watches. They send no request before the event is taken.
    fn begin(&mut self) {
        self.lists = true;
        self.progress = vec![Progress::Nothing; self.open.len()];
        self.watches = stream::select_all(
            self.open.iter().enumerate().map(|(index, open)| open().map(move |shown| (index, shown)).boxed()),
        );
        self.next.push_back(Merged::Event(Event::Init));
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
    type Feed = Arc<Mutex<Vec<UnboundedSender<Shown<Name>>>>>;

    /// Watches that the test feeds.
    struct Fed {
        merged: BoxStream<'static, Merged<Name>>,
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
            events.into_iter().for_each(|event| last.unbounded_send(Shown::Event(event)).expect("the receiver exists"));
        }

        fn refuse(&self, namespace: usize) {
            let feeds = self.feeds[namespace].lock().expect("no test panics with it");
            let last = feeds.last().expect("the watch is open");
            assert!(last.unbounded_send(Shown::Refused).is_ok());
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

    fn text(event: &Merged<Name>) -> String {
        let event = match event {
            Merged::Unlisted(index) => return format!("without {index}"),
            Merged::Event(event) => event,
        };
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

    /// Its role was deleted with it.
    #[test]
    fn a_namespace_that_cannot_be_listed_any_more_keeps_its_objects_and_delays_no_other() {
        let mut fed = Fed::new(2);
        fed.refuse(1);
        fed.feed(0, [Event::Init, Event::InitDone]);
        assert_eq!(fed.events(), [""; 0], "at first it is not known what is there");
        fed.feed(1, [Event::Init, Event::InitApply("b"), Event::InitDone]);
        assert_eq!(fed.events(), ["listed b", "complete"]);

        fed.feed(0, [Event::Init]);
        assert_eq!(fed.events(), ["list"]);
        fed.refuse(0);
        fed.refuse(1);
        assert_eq!(fed.events(), [""; 0], "no list is none");
        fed.feed(1, [Event::Init]);
        fed.feed(0, [Event::Init, Event::InitApply("a"), Event::InitDone]);
        assert_eq!(fed.events(), ["listed a", "without 1", "complete"]);
        fed.refuse(1);
        fed.feed(1, [Event::Init]);
        fed.feed(0, [Event::Apply("a")]);
        assert_eq!(fed.events(), ["changed a"]);

        fed.feed(1, [Event::InitApply("b")]);
        assert_eq!(fed.events(), ["list"], "it can be listed again");
        for namespace in [0, 1] {
            fed.feed(namespace, [Event::Init, Event::InitDone]);
        }
        assert_eq!(fed.events(), ["complete"]);
    }
}
