//! What is printed.

use super::*;

#[test]
fn text_of_objects_cannot_control_the_terminal() {
    let mut situation = Situation::unheld("NotPermitted", "\u{1b}[2JNo pod\nholds it.");
    situation.nodes = json!([node("a", "Down", Some("\u{1b}]0;title\u{7}")), node("b", "Up", None)]);
    let mut text = Vec::new();
    print::text(&situation.explained(), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(!text.contains(|char: char| char.is_control() && char != '\n'), "{text:?}");
    assert!(text.contains("\n  \u{fffd}[2JNo pod holds it. (NotPermitted)\n"), "{text:?}");
}
