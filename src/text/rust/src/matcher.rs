//! Finds many tokens in a text in linear time (Aho-Corasick, leftmost, then longest).

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};

pub struct Matcher(AhoCorasick);

impl Matcher {
    pub fn new(tokens: &[&[u8]]) -> Result<Self, String> {
        AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(tokens)
            .map(Matcher)
            .map_err(|e| e.to_string())
    }

    /// Start, end and index of the token, for each match. With `every_start` the search goes on one byte
    /// after the start of a match instead of at its end, so that every place where a token begins is found.
    pub fn find(&self, text: &[u8], every_start: bool) -> Vec<u64> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let Some(m) = self.0.find(Input::new(text).range(at..)) else {
                break;
            };
            found.extend([m.start() as u64, m.end() as u64, m.pattern().as_u64()]);
            at = if every_start { m.start() + 1 } else { m.end() };
        }
        found
    }
}
