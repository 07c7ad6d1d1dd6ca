//! Finds many tokens in a text in linear time (Aho-Corasick, leftmost, then longest).

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, Match, MatchKind};

/// Tokens of one automaton. Building one takes time in the square of its tokens where most of its states end
/// one (aho-corasick 1.1 orders them cycle by cycle), so that many tokens are spread over several.
const PART_TOKENS: usize = 8192;

pub struct Matcher(Vec<AhoCorasick>);

/// Where a part's next match is, looked up from some place at or before the current one.
#[derive(Clone, Copy)]
enum Next {
    Unknown,
    At(Match),
    Nowhere,
}

impl Matcher {
    pub fn new(tokens: &[&[u8]]) -> Result<Self, String> {
        let build = |part: &[&[u8]]| {
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .kind(Some(AhoCorasickKind::ContiguousNFA))
                .build(part)
                .map_err(|e| e.to_string())
        };
        tokens.chunks(PART_TOKENS).map(build).collect::<Result<_, _>>().map(Matcher)
    }

    /// Start, end and index of the token, for each match. With `every_start` the search goes on one byte
    /// after the start of a match instead of at its end, so that every place where a token begins is found.
    pub fn find(&self, text: &[u8], every_start: bool) -> Vec<u64> {
        let mut found = Vec::new();
        let mut next = vec![Next::Unknown; self.0.len()];
        let mut at = 0;
        while at < text.len() {
            let mut best: Option<(usize, Match)> = None;
            for (i, automaton) in self.0.iter().enumerate() {
                let is_stale = match next[i] {
                    Next::Unknown => true,
                    Next::At(m) => m.start() < at,
                    Next::Nowhere => false,
                };
                if is_stale {
                    let m = automaton.find(Input::new(text).range(at..));
                    next[i] = m.map_or(Next::Nowhere, Next::At);
                }
                let Next::At(m) = next[i] else { continue };
                if best.is_none_or(|(_, b)| (m.start(), b.end()) < (b.start(), m.end())) {
                    best = Some((i, m));
                }
            }
            let Some((part, m)) = best else { break };
            let token = part * PART_TOKENS + m.pattern().as_usize();
            found.extend([m.start() as u64, m.end() as u64, token as u64]);
            at = if every_start { m.start() + 1 } else { m.end() };
        }
        found
    }
}
