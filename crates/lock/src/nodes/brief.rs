//! Texts that a server chose, cut for logs and statuses.

/// The longest text, in bytes. A status with a longer one for each node could be too large for the API server.
const LONGEST: usize = 300;

/// The beginning of the text, on one line.
pub(super) fn brief(text: String) -> String {
    let mut text = if text.contains('\n') { text.split_whitespace().collect::<Vec<_>>().join(" ") } else { text };
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push_str(" ...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(brief("short".into()), "short");
        assert_eq!(brief("one\nline\n\n".into()), "one line");
        let cut = brief("ä".repeat(1000));
        assert!(cut.len() <= LONGEST + 4 && cut.ends_with("ä ..."), "{cut}");
    }
}
