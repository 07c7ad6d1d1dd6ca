//! The patterns of pre-tokenizers: all matches of one pattern, left to right.
//!
//! Nearly all of them end in `\s+(?!\S)|\s+`: a run of white space, without its last character where a word
//! follows. That look-ahead is the only thing that keeps them from a finite automaton, so it is done here by
//! hand and the rest runs in linear time. Patterns with other look-around go to a backtracking engine, which
//! refuses texts that exceed its limits.

use regex_automata::{meta, Input};

const TAIL: &str = r"|\s+(?!\S)|\s+";
const WHITE_SPACE: &str = r"\s+";

pub enum Pattern {
    Plain(meta::Regex),
    /// Pattern 0 is what stands before the tail, pattern 1 a run of white space.
    WithTail(meta::Regex),
    Backtracking(fancy_regex::Regex),
}

impl Pattern {
    pub fn new(pattern: &str) -> Result<Self, String> {
        if let Some(head) = pattern.strip_suffix(TAIL) {
            // Alone it compiles only if the tail was an alternative of the outermost level.
            if meta::Regex::new(head).is_ok() {
                if let Ok(regex) = meta::Regex::new_many(&[head, WHITE_SPACE]) {
                    return Ok(Pattern::WithTail(regex));
                }
            }
        }
        if let Ok(regex) = meta::Regex::new(pattern) {
            return Ok(Pattern::Plain(regex));
        }
        fancy_regex::Regex::new(pattern).map(Pattern::Backtracking).map_err(|e| e.to_string())
    }

    /// Start and end of each match, empty matches left out.
    pub fn find_all(&self, text: &str) -> Result<Vec<u64>, String> {
        let mut found = Vec::new();
        let mut push = |start: usize, end: usize| {
            if start < end {
                found.push(start as u64);
                found.push(end as u64);
            }
        };
        match self {
            Pattern::Plain(regex) => {
                for range in regex.find_iter(text) {
                    push(range.start(), range.end());
                }
            }
            Pattern::WithTail(regex) => {
                let mut at = 0;
                while at < text.len() {
                    let Some(range) = regex.find(Input::new(text).range(at..)) else {
                        break;
                    };
                    let (start, mut end) = (range.start(), range.end());
                    if range.pattern().as_usize() == 1 && end < text.len() {
                        let last = text[start..end].chars().next_back().map_or(0, char::len_utf8);
                        if end - last > start {
                            end -= last;
                        }
                    }
                    push(start, end);
                    // An empty match must not hold the search up; the next one begins after a character.
                    at = if end > at { end } else { at + text[at..].chars().next().map_or(1, char::len_utf8) };
                }
            }
            Pattern::Backtracking(regex) => {
                for range in regex.find_iter(text) {
                    let range = range.map_err(|e| e.to_string())?;
                    push(range.start(), range.end());
                }
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_by_hand_equals_the_backtracking_engine() {
        let heads = [
            r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+",
            r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
        ];
        let letters = ["a", "B", "1", " ", " ", "\n", "\r", "\t", "'s", "!", "é", "中", "\u{a0}", "\u{3000}", "\u{301}"];
        let mut state: u64 = 1;
        let mut next = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        for head in heads {
            let pattern = format!("{head}{TAIL}");
            let by_hand = Pattern::new(&pattern).unwrap();
            assert!(matches!(by_hand, Pattern::WithTail(_)));
            let definition = Pattern::Backtracking(fancy_regex::Regex::new(&pattern).unwrap());
            for _ in 0..3000 {
                let text: String = (0..next(20)).map(|_| letters[next(letters.len())]).collect();
                assert_eq!(by_hand.find_all(&text), definition.find_all(&text), "{text:?}");
            }
        }
    }

    #[test]
    fn a_tail_inside_a_group_is_left_to_the_backtracking_engine() {
        assert!(matches!(Pattern::new(r"(?:a|\s+(?!\S)|\s+)"), Ok(Pattern::Backtracking(_))));
        assert!(matches!(Pattern::new(r"\p{N}"), Ok(Pattern::Plain(_))));
        assert!(Pattern::new(r"(a").is_err());
    }
}
